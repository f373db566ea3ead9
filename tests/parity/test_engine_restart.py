"""Law 1 and where the engine runs: in a thread, in a process, after a crash, heard as a stream or whole."""

import os
import signal
import time
from pathlib import Path

import pytest
from engine_answers import BYTES, TIMEOUT_S, Answer, alone, answers, case_id, config, requests
from kinds import Kind
from test_engine_equivalence import MODELS

from freehold import LLM, SamplingParams
from freehold.engine.remote import ProcessEngine

KINDS = [Kind("cpu"), Kind("cpu", "int8")]


def restarted(engine: ProcessEngine) -> None:
    """Kill the engine's process and wait for the next."""
    pid, end_s = engine.pid, time.monotonic() + TIMEOUT_S
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while engine.pid in {None, pid}:
        assert time.monotonic() < end_s
        time.sleep(0.01)


def check_process(path: Path, kind: Kind, truth: list[Answer]) -> None:
    with ProcessEngine.start(config(path, kind)) as engine:
        engine.teach(BYTES)
        wanted, fingerprint = requests(engine.info.vocab_size), engine.info.fingerprint
        assert answers(engine, wanted) == truth, "in a process"
        restarted(engine)
        assert answers(engine, wanted) == truth, "after a crash"
        assert engine.info.fingerprint == fingerprint


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("model", MODELS, ids=case_id)
def test_tiny_models_in_a_process(model: tuple[str, str], kind: Kind, tiny) -> None:
    path = tiny(*model).path
    check_process(path, kind, alone(path, kind))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_real_model_in_a_process(kind: Kind, smollm2_path: Path) -> None:
    check_process(smollm2_path, kind, alone(smollm2_path, kind))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0, max_tokens=40),
        SamplingParams(seed=7, max_tokens=40),
        SamplingParams(temperature=0.8, top_k=40, top_p=0.9, seed=9, max_tokens=40, stop=["e", "\n\n"]),
    ],
    ids=["greedy", "seeded", "stopped"],
)
def test_a_stream_is_the_answer_in_parts(params: SamplingParams, smollm2_path: Path) -> None:
    prompts = ["The sea", "Once upon a time", "1, 2, 3,"]
    with LLM(smollm2_path, max_model_len=256, threads=1) as llm:
        whole = llm.generate(prompts, params)
        for prompt, expected in zip(prompts, whole, strict=True):
            pieces = list(llm.stream(prompt, params))
            last = pieces[-1].completion
            assert last is not None
            assert "".join(piece.text for piece in pieces) == expected.text == last.text
            assert tuple(i for piece in pieces for i in piece.token_ids) == expected.token_ids == last.token_ids
