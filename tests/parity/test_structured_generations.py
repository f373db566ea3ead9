"""Random schemas and a random model that is drawn from wildly: whatever is complete, an independent validator takes."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from tests.random_schemas import Schemas

from freehold.files.tensors import DType
from freehold.grammar.constraint import JsonSchema
from freehold.llm import LLM
from freehold.synth import PRESETS, write_checkpoint
from freehold.text.params import SamplingParams

COUNT = 500
MAX_TOKENS = 400


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path: Path = tmp_path_factory.mktemp("random") / "model.gguf"
    write_checkpoint(PRESETS["tiny"], path, format="gguf", dtype=DType.F32, seed=3)
    with LLM(path, threads=2) as llm:
        yield llm


def test_five_hundred_complete_answers_satisfy_their_schemas(llm: LLM) -> None:
    schemas = Schemas(seed=5)
    drawn = [schemas.draw() for _ in range(COUNT)]
    params = [
        SamplingParams(temperature=1.5, seed=index, max_tokens=MAX_TOKENS, structured_outputs=JsonSchema(schema))
        for index, schema in enumerate(drawn)
    ]
    ends: Counter[str] = Counter()
    completions = llm.generate([f"{index}" for index in range(COUNT)], params)
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    for schema, completion in zip(drawn, completions, strict=True):
        ends[completion.finish_reason] += 1
        if completion.finish_reason == "stop":
            value = json.loads(completion.text)
            jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)
        else:
            assert completion.finish_reason == "length", completion
            assert len(completion.token_ids) == MAX_TOKENS
    print(dict(ends))
    assert ends["stop"] >= 400, ends
