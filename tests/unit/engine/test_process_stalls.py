"""A process that is silent, hangs or doesn't listen."""

import os
import signal
import time

import pytest
from engine_fixtures import TIMEOUT_S, Receiver, wait_until
from process_fixtures import is_running, pid_of, start, submit, works
from scripted_child import HANGS, SLOW

from freehold.engine import remote, watch
from freehold.engine.remote import ProcessEngine
from freehold.errors import EngineError

STALL_S = 5.0
"""A stalled engine is not ready after so long, at most."""


def test_a_stopped_process_is_seen_ended_and_replaced(engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "DEAD_S", 5.0)
    first = pid_of(engine)
    receiver = submit(engine, "a", (SLOW,), max_tokens=4000)
    assert receiver.first.wait(TIMEOUT_S)
    os.kill(first, signal.SIGSTOP)
    started_s = time.monotonic()
    wait_until(lambda: not engine.health().ok)
    assert time.monotonic() - started_s < STALL_S
    assert "said nothing" in engine.health().reason
    assert receiver.wait().code == "engine_died"
    wait_until(lambda: not is_running(first))
    works(engine)


def test_a_process_that_goes_on_in_time_is_kept(engine: ProcessEngine) -> None:
    first = pid_of(engine)
    receiver = submit(engine, "a", (SLOW,), max_tokens=100)
    assert receiver.first.wait(TIMEOUT_S)
    os.kill(first, signal.SIGSTOP)
    wait_until(lambda: not engine.health().ok)
    os.kill(first, signal.SIGCONT)
    wait_until(lambda: engine.health().ok)
    assert receiver.wait().reason == "length"
    assert receiver.token_ids == list(range(100))
    assert engine.pid == first


def test_a_hanging_backend_is_seen_ended_and_replaced() -> None:  # op-01
    with start(stall_timeout_s=5) as engine:
        receiver = submit(engine, "a", (HANGS,), max_tokens=4)
        started_s = time.monotonic()
        wait_until(lambda: not engine.health().ok)
        assert time.monotonic() - started_s < STALL_S
        assert "finished no step" in engine.health().reason
        assert receiver.wait().code == "engine_died"
        works(engine)


def test_what_a_stopped_process_doesn_t_take_is_bounded(engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_PENDING_BYTES", 1 << 20)
    os.kill(pid_of(engine), signal.SIGSTOP)
    receivers: list[Receiver] = []
    refusal: EngineError | None = None
    while refusal is None and len(receivers) < 1000:
        try:
            receivers.append(submit(engine, str(len(receivers)), tuple(range(6000)), max_tokens=1))
        except EngineError as error:
            refusal = error
    assert refusal is not None
    assert refusal.code == "engine_busy"
    assert len(receivers) > 20
    os.kill(pid_of(engine), signal.SIGCONT)
    for receiver in receivers:
        assert receiver.wait().reason == "length"
    works(engine)
