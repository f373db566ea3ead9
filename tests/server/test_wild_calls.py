"""Random weights, drawn from wildly, with tools to call: calls are right, other text is as without a grammar."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from tests.server.conftest import starting
from tests.server.families import TEMPLATES, family
from tests.server.running import Server

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.files.tensors import DType
from freehold.files.vocabulary import TextAssets
from freehold.serve.chat.dialect import token_id
from freehold.serve.toolcalls.formats import ARG_KEY, ARGS, PYTHON_TAG, TOOL_CALL, TOOL_CALLS
from freehold.synth import PRESETS, write_checkpoint

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome", None]}, "days": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["days"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("weather", "now")]
THINK = ("<think>", "</think>")
FAMILIES: dict[str, dict[str, tuple[str, ...]]] = {
    "hermes": {"added": (TOOL_CALL, "</tool_call>", *THINK)},
    "qwen3_coder": {"added": (TOOL_CALL, "</tool_call>", *THINK)},
    "glm45": {"added": (TOOL_CALL, "</tool_call>", ARG_KEY, "</arg_key>", "<arg_value>", "</arg_value>")},
    "llama3_json": {"controls": (PYTHON_TAG,)},
    "mistral": {"controls": (TOOL_CALLS, ARGS)},
    "mistral_old": {"controls": (TOOL_CALLS,)},
    "json": {"added": THINK},
}
DEFAULT = ("hermes", "glm45", "mistral", "json")
NUM_ANSWERS = 8


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory, text: TextAssets) -> Iterator[dict[str, Server]]:
    path = tmp_path_factory.mktemp("wild") / "model.gguf"
    shape = replace(PRESETS["tiny"], vocab_size=49152, hidden_size=64, num_layers=2, num_heads=2, num_kv_heads=1)
    write_checkpoint(shape, path, format="gguf", dtype=DType.F32, seed=3)
    engines: list[Engine] = []
    with starting(text) as start:

        def server(name: str) -> Server:
            engines.append(Engine.start(EngineConfig(model_path=path, kv_cache_bytes=32 << 20)))
            return start(family(text, TEMPLATES.get(name), **FAMILIES[name]), handle=engines[-1])

        yield {name: server(name) for name in FAMILIES}


@pytest.mark.parametrize(
    "name",
    [*DEFAULT, *(pytest.param(n, marks=pytest.mark.slow) for n in FAMILIES if n not in DEFAULT)],
)
def test_wild_answers_call_rightly_or_are_left_alone(wild: dict[str, Server], name: str) -> None:
    server = wild[name]
    ids = {each: token_id(server.tokenizer, each) for each in (TOOL_CALL, TOOL_CALLS, PYTHON_TAG, *THINK)}
    sampling: dict[str, Any] = {
        "temperature": 1.5, "seed": 11, "n": NUM_ANSWERS, "max_tokens": 120, "return_token_ids": True,
        "logit_bias": {str(likely): 14 for likely in ids.values() if likely is not None},
    }  # fmt: skip
    chat = server.chat(messages=[{"role": "user", "content": "Go on."}], tools=TOOLS, **sampling).json()
    plain = server.post("/v1/completions", prompt=chat["prompt_token_ids"], **sampling).json()
    num_complete = num_free = 0
    for answer, other in zip(chat["choices"], plain["choices"], strict=True):
        calls = answer["message"].get("tool_calls") or []
        for number, call in enumerate(calls, 1):
            try:
                arguments = json.loads(call["function"]["arguments"])
            except json.JSONDecodeError:
                assert (answer["finish_reason"], number) == ("length", len(calls))
                continue
            jsonschema.validate(arguments, SCHEMA)
            num_complete += 1
        is_opener = [each in (ids[TOOL_CALL], ids[TOOL_CALLS]) for each in answer["token_ids"]]
        size = [*is_opener, True].index(True)
        assert answer["token_ids"][:size] == other["token_ids"][:size]
        num_free += size
    if name not in ("llama3_json", "json"):
        assert num_complete > 1
    assert num_free > 20
