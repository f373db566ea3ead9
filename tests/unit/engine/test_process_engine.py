"""The engine in a process of its own: the same answers and errors as in a thread."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engine_fixtures import TIMEOUT_S, Receiver, generate, scripted_config
from process_fixtures import submit, works
from scripted_child import NAN, SLOW

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.engine.ledger import Ledger
from freehold.engine.remote import ProcessEngine
from freehold.errors import RequestError, UserError
from freehold.protocol import RequestId


def test_the_same_answers_and_the_same_fingerprint_as_in_a_thread(engine: ProcessEngine) -> None:
    with Engine.start(scripted_config()) as thread:
        assert engine.info.fingerprint == thread.info.fingerprint
        assert (engine.info.num_blocks, engine.info.max_model_len) == (
            thread.info.num_blocks,
            thread.info.max_model_len,
        )
        answers = []
        for side in (engine, thread):
            receivers = [Receiver() for _ in range(20)]
            for i, receiver in enumerate(receivers):
                side.submit(generate(str(i), (*range(i + 1), 7), max_tokens=30 + i, digests=True), receiver)
            # How much of a prompt was reused depends on when it came.
            ends = [
                msgspec.structs.replace(receiver.wait(), num_cached_tokens=0, stages=None) for receiver in receivers
            ]
            answers.append(([(r.token_ids, r.digests) for r in receivers], ends))
            side.ledger().check(0)
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "code"),
    [((), 1, "empty_prompt"), ((5,), 0, "invalid_value"), ((5, 1 << 16), 1, "token_id_out_of_range")],
)
def test_refusals(engine: ProcessEngine, prompt: tuple[int, ...], max_tokens: int, code: str) -> None:
    with pytest.raises(RequestError) as refusal:
        submit(engine, "a", prompt, max_tokens=max_tokens)
    assert refusal.value.code == code
    assert engine.ledger() == Ledger(received=1, refused=1)


def test_an_abort_ends_a_request(engine: ProcessEngine) -> None:
    receiver = submit(engine, "a", (SLOW,), max_tokens=4000)
    assert receiver.first.wait(TIMEOUT_S)
    engine.abort(RequestId("a"))
    assert receiver.wait().reason == "cancelled"
    assert len(receiver.token_ids) < 1000
    works(engine)


def test_a_request_that_fails_fails_alone(engine: ProcessEngine) -> None:
    bad, good = submit(engine, "bad", (NAN,), max_tokens=9), submit(engine, "good", (9,), max_tokens=9)
    assert bad.wait().code == "numeric_error"
    assert good.wait().reason == "length"
    assert engine.health().ok


def bad_files(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "missing", {"model_path": folder / "missing.gguf"}
    (folder / "junk.gguf").write_bytes(b"junk" * 100)
    yield "junk", {"model_path": folder / "junk.gguf"}
    (folder / "bert").mkdir()
    (folder / "bert" / "config.json").write_text('{"architectures": ["BertModel"], "model_type": "bert"}')
    yield "unsupported", {"model_path": folder / "bert"}


def test_what_can_t_be_loaded_is_the_same_error_as_in_a_thread(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cases = [
        *(EngineConfig(backend="reference", **fields) for _, fields in bad_files(tmp_path)),
        scripted_config(kv_cache_bytes=1),
        scripted_config(block_size=3),
        scripted_config(max_model_len=1 << 20),
        scripted_config(memory_limit_bytes=1 << 20),
    ]
    for config in cases:
        with pytest.raises(UserError) as here:
            Engine.start(config)
        with pytest.raises(UserError) as there:
            ProcessEngine.start(config)
        assert (type(there.value), str(there.value)) == (type(here.value), str(here.value))
    assert capfd.readouterr().err == ""
