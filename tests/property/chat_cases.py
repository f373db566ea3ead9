"""Made-up answers of models that think, talk and call tools: ids, how they come, and what was asked."""

import asyncio
import json
import random
from collections import abc
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
from tests.server.families import DEEPSEEK, TEMPLATES, family

from freehold.backends.script import made_up_logprobs
from freehold.config import ServeConfig
from freehold.files.vocabulary import TextAssets
from freehold.protocol import EngineInfo, Event, Finish, FinishReason, Generate, Tokens
from freehold.serve import answer as answers
from freehold.serve.answer import Head
from freehold.serve.chat.dialect import Dialect, dialect_of
from freehold.serve.chat.form import ChatForm
from freehold.serve.entrance.record import Record
from freehold.serve.toolcalls.writing import Callable
from freehold.text.jobs import Handling, Job, JobPlanner
from freehold.text.params import SamplingParams

PROMPT_IDS = (40, 41, 42)
TOOLS = ("weather", "now")
SCHEMAS: dict[str, dict[str, Any]] = {"weather": {"properties": {"a": {"type": "string"}}}, "now": {}}
INFO = EngineInfo(
    model_family="scripted", vocab_size=49152, max_model_len=4096, max_position=4096, max_num_seqs=4, block_size=16,
    num_blocks=64, kv_tokens=1024, weight_bytes=0, kv_bytes=0, scratch_bytes=0, backend="scripted", fingerprint="f",
    load_s=0.0,
)  # fmt: skip
# fmt: off
_WORDS = [
    "the sky ",
    "is",
    " blue",
    "9.8",
    "STOP",
    "ST",
    "🦜",
    "日本",
    "\n",
    "  ",
    "<",
    "<think>",
    "</think>",
    "{",
    "]",
    '"',
]
_FRAGMENTS = [
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    '{"name": "',
    "}",
    "<tool_",
    "</parameter>",
    "</arg_value>",
    ";",
]


@dataclass(frozen=True, slots=True)
class Model:
    """A family's text side and dialect."""

    text: TextAssets
    dialect: Dialect


def models(text: TextAssets) -> list[Model]:
    """One of each family, with markup that is text, control tokens or added ones."""
    tags = ("<think>", "</think>")
    made = [
        *(family(text, template) for template in TEMPLATES.values()),
        family(text, None),
        family(text, TEMPLATES["hermes"], added=("<tool_call>", "</tool_call>", *tags)),
        family(text, TEMPLATES["glm45"], added=("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>")),
        family(text, TEMPLATES["glm45"], controls=("<tool_call>", "</tool_call>", "<arg_value>", "</arg_value>")),
        family(text, TEMPLATES["mistral"], controls=("[TOOL_CALLS]", "[ARGS]")),
        family(text, DEEPSEEK, controls=tags),
    ]
    return [Model(each, dialect_of(each, ServeConfig())) for each in made]


@dataclass(frozen=True, slots=True)
class Case:
    """One request and what the engine says to it.

    Attributes:
        scripts: of each answer, the events.
    """

    model: Model
    form: ChatForm
    jobs: list[Job]
    scripts: dict[str, list[Event]]

    async def streamed(self) -> list[Any]:
        """The chunks of its stream, as JSON."""
        service: Any = SimpleNamespace(engine=_Scripted(self.scripts))
        chunks: list[bytes] = []
        await answers._tell(
            service, self.form, self.jobs, Record("r"), lambda chunk: chunks.append(msgspec.json.encode(chunk))
        )
        return [msgspec.json.decode(chunk) for chunk in chunks]

    async def whole(self) -> Any:
        """The plain answer, as JSON."""
        engine: Any = _Scripted(self.scripts)
        return msgspec.json.decode(answers._write(self.form, await answers.fold(engine, self.jobs, Record("r"))))


class _Scripted:
    """An engine that says what it is given. It goes on for a while after an abort, as a real one does."""

    def __init__(self, scripts: dict[str, list[Event]]) -> None:
        self.engine = SimpleNamespace(abort=lambda request_id: None)
        self._scripts = scripts

    def submit(self, generate: Generate, take: abc.Callable[[Event], None], _observer: object) -> None:
        """One event a turn of the loop, so that those of several answers mix."""
        loop, events = asyncio.get_running_loop(), iter(self._scripts[generate.request_id])

        def say() -> None:
            if (event := next(events, None)) is not None:
                take(event)
                loop.call_soon(say)

        loop.call_soon(say)


def made_up(chance: random.Random, known: list[Model]) -> tuple[Case, Case]:
    """The same request twice, to be streamed and to be answered whole: readers can be used once."""
    model = chance.choice(known)
    params = SamplingParams(
        n=chance.choice([1, 1, 1, 2]),
        stop=chance.sample(["STOP", "9.8", "}", "</think>", " ", "sky is"], chance.choice([0, 0, 1, 2])),
        logprobs=chance.choice([None, 0, 2]),
        min_tokens=chance.choice([0, 0, 0, 3]),
        seed=1,
    )
    asked = {
        "with_ids": chance.random() < 0.7,
        "is_named": chance.random() < 0.2,
        "tools": TOOLS if chance.random() < 0.8 else (),
        "one_call": chance.random() < 0.2,
    }
    scripts = {
        f"x-{choice}": _script(chance, model, f"x-{choice}", params.logprobs is not None) for choice in range(params.n)
    }
    return _case(model, params, scripts, **asked), _case(model, params, scripts, **asked)


def _case(
    model: Model,
    params: SamplingParams,
    scripts: dict[str, list[Event]],
    *,
    with_ids: bool,
    is_named: bool,
    tools: tuple[str, ...],
    one_call: bool,
) -> Case:
    callables = [Callable(name, SCHEMAS[name], "tools") for name in tools]
    reading = model.dialect.reading(PROMPT_IDS, callables, one_call=one_call)
    planner = JobPlanner(model.text.tokenizer, INFO, Handling(reading=reading))
    jobs = planner.plan(PROMPT_IDS, params, request_id="x", fresh_seed=1)
    head = Head("chatcmpl-1", 1, "test", "f", with_ids, True, params.n, 1)
    return Case(model, ChatForm(head, PROMPT_IDS, params, is_named=is_named), jobs, scripts)


def _script(chance: random.Random, model: Model, request_id: Any, is_scored: bool) -> list[Event]:
    ids = _ids(chance, model, _text(chance, model))
    reason: FinishReason = "stop" if chance.random() < 0.7 else "length"
    if reason == "length":
        ids = ids[: chance.randint(1, len(ids))]
    else:
        ids.append(min(model.text.tokenizer.eos_ids))
    events: list[Event] = []
    begin = 0
    while begin < len(ids):
        batch = ids[begin : begin + chance.choice([1, 1, 1, 2, 3, 7])]
        scores = tuple(made_up_logprobs(begin + n, token_id, 2, 49152) for n, token_id in enumerate(batch))
        events.append(
            Tokens(request_id=request_id, token_ids=tuple(batch), logprobs=scores if is_scored else ())
        )  # fmt: skip
        begin += len(batch)
    stop_id = ids[-1] if reason == "stop" else None
    return [
        *events,
        Finish(
            request_id=request_id, reason=reason, stop_id=stop_id, num_prompt_tokens=len(PROMPT_IDS),
            num_output_tokens=len(ids), num_cached_tokens=1,
        ),
    ]  # fmt: skip


def _text(chance: random.Random, model: Model) -> str:
    """Reasoning, words and calls, some of them broken."""
    pieces = [chance.choice(["", "<think>\n", "<think>", " "])] if chance.random() < 0.6 else []
    if pieces:
        pieces += [*chance.choices(_WORDS, k=chance.randint(0, 4)), chance.choice(["</think>\n\n", "</think>", ""])]
    for _ in range(chance.randint(0, 3)):
        if chance.random() < 0.5:
            pieces += chance.choices(_WORDS, k=chance.randint(0, 5))
        else:
            pieces.append(_calls(chance, model))
    text = "".join(pieces)
    if chance.random() < 0.3 and text:
        place = chance.randrange(len(text))
        text = text[:place] + chance.choice(_FRAGMENTS) + text[place + chance.randint(0, 2) :]
    return text


def _calls(chance: random.Random, model: Model) -> str:
    def value(depth: int) -> Any:
        kind = chance.randrange(5 if depth else 3)
        if kind == 0:
            return chance.choice([0, -1.5, 10**20, True, None])
        if kind < 3:
            return "".join(chance.choices(_WORDS, k=2))
        return [value(depth - 1)] if kind == 3 else {chance.choice(_WORDS): value(depth - 1)}

    written = [
        (chance.choice([*TOOLS, "stranger"]), json.dumps({"a": value(2)}, ensure_ascii=chance.random() < 0.5))
        for _ in range(chance.choice([1, 1, 2]))
    ]
    form = model.dialect.calls
    return (form.one if len(written) == 1 else form.several).text(written)


def _ids(chance: random.Random, model: Model, text: str) -> list[int]:
    """Ids of a text that is cut anywhere, so that tokens are as a model may choose them."""
    vocabulary = model.text.tokenizer.vocabulary
    tokens = {**vocabulary.controls, **vocabulary.added}
    for literal in (*model.dialect.calls.literals, "<think>", "</think>"):
        if literal in tokens:
            text = text.replace(literal, f"\0{literal}\0")
    ids: list[int] = []
    for piece in text.split("\0"):
        if piece in tokens:
            ids.append(tokens[piece].token_id)
            continue
        begin = 0
        while begin < len(piece):
            size = chance.choice([1, 2, 3, 5, 8, 40])
            ids += model.text.tokenizer.encode(piece[begin : begin + size], add_bos=False)
            begin += size
    return ids or model.text.tokenizer.encode("x", add_bos=False)
