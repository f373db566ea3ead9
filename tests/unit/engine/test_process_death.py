"""Every way in which the engine's process can end, and that it comes back."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_fixtures import TIMEOUT_S, Receiver, scripted_config, wait_until
from fault_child import pids_of, program
from process_fixtures import decoding, is_running, pid_of, stand_in, submit, works
from scripted_child import BREAKS, HANGS, LATE, SLOW

from freehold.engine import remote
from freehold.engine.ledger import Ledger
from freehold.engine.remote import ProcessEngine
from freehold.errors import EngineError, ResourceError
from freehold.protocol import RequestId


def queued(engine: ProcessEngine) -> list[Receiver]:
    """More requests than run at once, some of them begun."""
    receivers = [submit(engine, str(i), (SLOW, i), max_tokens=4000) for i in range(100)]
    assert receivers[0].first.wait(TIMEOUT_S)
    return receivers


def prefilling(engine: ProcessEngine) -> list[Receiver]:
    return [submit(engine, str(i), (LATE, *range(4000)), max_tokens=20) for i in range(3)]


def aborting(engine: ProcessEngine) -> list[Receiver]:
    receivers = decoding(engine)
    os.kill(pid_of(engine), signal.SIGSTOP)
    for i in range(20):
        engine.abort(RequestId(str(i)))
    return receivers


def hanging(engine: ProcessEngine) -> list[Receiver]:
    receiver = submit(engine, "a", (HANGS,), max_tokens=4)
    time.sleep(0.2)
    return [receiver]


def idle(engine: ProcessEngine) -> list[Receiver]:
    return []


@pytest.mark.parametrize(
    ("state", "number"),
    [
        *((s, signal.SIGKILL) for s in (idle, queued, prefilling, decoding, aborting, hanging)),
        (decoding, signal.SIGSEGV),
    ],
)
def test_killed_in_any_state(
    engine: ProcessEngine, state: Callable[[ProcessEngine], list[Receiver]], number: signal.Signals
) -> None:
    fingerprint, first = engine.info.fingerprint, pid_of(engine)
    receivers = state(engine)
    started_s = time.monotonic()
    os.kill(first, number)
    os.kill(first, signal.SIGCONT)
    for receiver in receivers:
        finish = receiver.wait()
        assert (finish.reason, finish.code) == ("failed", "engine_died")
        assert finish.num_output_tokens == len(receiver.token_ids)
    assert time.monotonic() - started_s < 10
    wait_until(lambda: engine.pid not in {None, first})
    works(engine)
    assert engine.info.fingerprint == fingerprint
    assert not is_running(first)
    num, num_ids = len(receivers), 5 + sum(len(receiver.token_ids) for receiver in receivers)
    assert engine.ledger() == Ledger(
        received=num + 1, accepted=num + 1, finished=1, failed=num, published_ids=num_ids, ended_ids=num_ids
    )


def test_requests_that_come_while_it_starts_again_are_refused(tmp_path: Path) -> None:
    """The second life hangs before it knows what to load, so there is time to ask; then it is ended too."""
    lives = tmp_path / "lives"
    command = program(lives, 2, "IPC_RECEIVE:wait=3600:1")
    with ProcessEngine.start(scripted_config(), program=command) as engine:
        os.kill(pid_of(engine), signal.SIGKILL)
        wait_until(lambda: len(pids_of(lives)) == 2 and not engine.health().ok)
        with pytest.raises(EngineError, match=r"ended by SIGKILL; it is being started again") as refusal:
            submit(engine, "a", (5,), max_tokens=1)
        assert refusal.value.code == "engine_restarting"
        os.kill(pids_of(lives)[1], signal.SIGKILL)
        works(engine)
    assert engine.ledger() == Ledger(received=2, refused=1, accepted=1, finished=1, published_ids=5, ended_ids=5)


def test_a_backend_that_breaks_is_replaced(engine: ProcessEngine) -> None:  # op-12
    bad, other = submit(engine, "bad", (BREAKS,), max_tokens=9), submit(engine, "other", (SLOW,), max_tokens=4000)
    for receiver in (bad, other):
        finish = receiver.wait()
        assert (finish.reason, finish.code) == ("failed", "engine_failed")
        assert "device lost" not in (finish.message or ""), "what is inside stays inside"
    works(engine)


def test_it_gives_up_in_the_end(engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_DEATHS", 3)
    for _ in range(3):
        wait_until(lambda: engine.health().ok)
        assert submit(engine, "a", (BREAKS,), max_tokens=9).wait().code == "engine_failed"
    wait_until(lambda: bool(engine.fault))
    assert "ended 3 times in a row" in engine.fault
    assert "device lost" in engine.fault
    assert not engine.health().ok
    with pytest.raises(EngineError) as refusal:
        submit(engine, "a", (5,), max_tokens=9)
    assert refusal.value.code == "engine_stopped"


def test_an_engine_that_is_of_use_is_started_again_however_often_it_dies(
    engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MAX_DEATHS", 2)
    for _ in range(4):
        works(engine)
        os.kill(pid_of(engine), signal.SIGKILL)
        wait_until(lambda: engine.pid is None)
    works(engine)
    assert engine.ledger().finished == 5


def test_other_files_after_a_restart_are_not_served(tmp_path: Path) -> None:  # pc-04
    """A stand-in that reports another fingerprint each time it starts."""
    engine = ProcessEngine.start(scripted_config(), program=stand_in("fickle"))
    os.kill(pid_of(engine), signal.SIGKILL)
    wait_until(lambda: bool(engine.fault))
    assert "changed while it was served" in engine.fault
    engine.shutdown()


def test_an_engine_that_loses_ids_is_replaced() -> None:
    """A stand-in that claims two ids where one came: its clients have their ends, and it isn't trusted any more."""
    with ProcessEngine.start(scripted_config(), program=stand_in("miscounts")) as engine:
        pid = pid_of(engine)
        receiver = submit(engine, "a", (5,), max_tokens=2)
        assert (receiver.wait().num_output_tokens, receiver.token_ids) == (2, [7])
        wait_until(lambda: engine.pid not in {None, pid})
        assert engine.ledger() == Ledger(received=1, accepted=1, finished=1, published_ids=1, ended_ids=1)


def test_books_that_don_t_balance_end_the_engine_for_good(
    engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the server's own: no new process puts them right."""
    monkeypatch.setattr(remote, "MAX_DEATHS", 2)
    works(engine)
    engine._ledger.accepted += 1
    wait_until(lambda: bool(engine.fault))
    assert "the ledger doesn't balance" in engine.fault
    engine._ledger.accepted -= 1  # for the fixture


@pytest.mark.parametrize("what", ["dies", "says_junk", "says_too_much", "isn_t_there"])
def test_a_process_that_never_loads_is_an_error(what: str) -> None:
    program = ["/nowhere/python"] if what == "isn_t_there" else stand_in(what)
    with pytest.raises(ResourceError, match=r"exit code 3|can't be read|can't be started") as error:
        ProcessEngine.start(scripted_config(), program=program)
    assert "memory" not in str(error.value), "nothing points to it"
