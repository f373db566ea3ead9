"""The time of day jumps by an hour, to and fro, in server and engine: no timeout, deadline or watch takes notice."""

import itertools
import sys
import time
from pathlib import Path

import pytest
from clock_child import JUMPS_S
from engine_fixtures import TIMEOUT_S, Receiver, generate, scripted_config, wait_until
from msgspec import structs
from scripted_child import HANGS, SLOW

from freehold.engine.remote import ProcessEngine

PROGRAM = (sys.executable, str(Path(__file__).with_name("clock_child.py")))


@pytest.fixture
def jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets, right_s = itertools.cycle(JUMPS_S), time.time
    monkeypatch.setattr(time, "time", lambda: right_s() + next(offsets))
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))


@pytest.mark.usefixtures("jumps")
def test_no_timeout_and_no_deadline_takes_notice() -> None:
    assert max(time.time() for _ in range(9)) - min(time.time() for _ in range(9)) > 7000
    with ProcessEngine.start(scripted_config(stall_timeout_s=4.0), program=PROGRAM) as engine:
        pid, long, late = engine.pid, Receiver(), Receiver()
        engine.submit(generate("long", (SLOW,), max_tokens=100), long)
        engine.submit(structs.replace(generate("late", (SLOW, 1), max_tokens=4000), deadline_s=1.0), late)
        started_s = time.monotonic()
        while not long.ended.is_set():
            assert engine.health().ok, engine.health().reason
            assert time.monotonic() - started_s < TIMEOUT_S
            time.sleep(0.01)
        assert (long.wait().reason, long.token_ids) == ("length", list(range(100)))
        assert late.wait().code == "deadline_exceeded"
        assert 5 < len(late.token_ids) < 100
        assert engine.pid == pid


@pytest.mark.slow
@pytest.mark.usefixtures("jumps")
def test_a_hang_is_noticed_in_its_own_time() -> None:
    with ProcessEngine.start(scripted_config(stall_timeout_s=4.0), program=PROGRAM) as engine:
        hanging = Receiver()
        engine.submit(generate("hanging", (HANGS,), max_tokens=4), hanging)
        assert hanging.first.wait(TIMEOUT_S)
        started_s = time.monotonic()
        assert hanging.wait().code == "engine_died"
        assert 3 < time.monotonic() - started_s < 15
        wait_until(lambda: engine.health().ok)
