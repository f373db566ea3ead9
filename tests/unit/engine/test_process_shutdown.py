"""The ends of the engine's process that are wanted: shutdown in every state, and with its owner."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from engine_fixtures import TIMEOUT_S, scripted_config, wait_until
from fault_child import pids_of, program
from process_fixtures import decoding, is_running, pid_of, submit
from scripted_child import HANGS, LATE, PROGRAM, SLOW
from tests import processes

from freehold.engine import remote
from freehold.engine.remote import ProcessEngine
from freehold.errors import EngineError

HERE = Path(__file__).parent


def test_shutdown_lets_requests_finish(engine: ProcessEngine) -> None:
    pid, receiver = pid_of(engine), submit(engine, "a", (SLOW,), max_tokens=20)
    os.kill(pid, signal.SIGINT)  # Ctrl-C reaches every process of a group; the engine's end is up to the server
    os.kill(pid, signal.SIGTERM)
    engine.shutdown(deadline_s=TIMEOUT_S)
    assert receiver.wait().reason == "length"
    assert not is_running(pid)
    assert engine.health().reason == "the engine has stopped"
    with pytest.raises(EngineError):
        submit(engine, "b", (5,), max_tokens=20)


def test_shutdown_cancels_at_its_deadline_and_sooner_if_told_again(engine: ProcessEngine) -> None:
    receiver = submit(engine, "a", (SLOW,), max_tokens=4000)
    assert receiver.first.wait(TIMEOUT_S)
    patient = threading.Thread(target=engine.shutdown, args=(3600,))
    patient.start()
    wait_until(lambda: not engine.health().ok)
    with pytest.raises(EngineError) as refusal:
        submit(engine, "b", (5,), max_tokens=20)
    assert refusal.value.code == "engine_stopping"
    assert not receiver.ended.is_set()
    engine.shutdown(deadline_s=0.1)
    assert receiver.wait().reason == "cancelled"
    patient.join(TIMEOUT_S)
    assert not patient.is_alive()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_shutdown_of_an_engine_that_hangs(engine: ProcessEngine, is_stopped: bool) -> None:
    pid, receiver = pid_of(engine), submit(engine, "a", (HANGS,), max_tokens=4)
    assert receiver.first.wait(TIMEOUT_S)
    time.sleep(0.2)  # into the step that hangs
    if is_stopped:
        os.kill(pid, signal.SIGSTOP)
    engine.shutdown()
    assert receiver.wait().code == "engine_stalled"
    assert not is_running(pid)


def test_shutdown_of_an_engine_whose_steps_are_long(engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no time to cancel its requests itself; that it was ended is no fault of its own."""
    monkeypatch.setattr(remote, "GRACE_S", 0.2)
    pid, receiver = pid_of(engine), submit(engine, "a", (LATE,), max_tokens=40)
    engine.shutdown()
    assert receiver.wait().reason == "cancelled"
    assert not is_running(pid)


def test_shutdown_while_loading_and_before() -> None:
    for begins in (False, True):
        engine = ProcessEngine(program=[*PROGRAM, "--slow-start"])
        if begins:
            engine.begin(scripted_config(), "info")
        started_s = time.monotonic()
        engine.shutdown()
        assert time.monotonic() - started_s < 10
        with pytest.raises(EngineError):
            engine.wait()


def test_shutdown_while_it_starts_again(tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    engine = ProcessEngine.start(scripted_config(), program=program(lives, 2, "IPC_RECEIVE:wait=3600:1"))
    os.kill(pid_of(engine), signal.SIGKILL)
    wait_until(lambda: len(pids_of(lives)) == 2 and not engine.health().ok)
    started_s = time.monotonic()
    engine.shutdown(deadline_s=TIMEOUT_S)
    assert time.monotonic() - started_s < TIMEOUT_S / 2
    assert not is_running(pids_of(lives)[1])


def test_an_impatient_shutdown_still_ends_the_process(engine: ProcessEngine) -> None:
    """Ctrl-C while waiting for requests to finish."""
    pid, receiver = pid_of(engine), submit(engine, "a", (SLOW,), max_tokens=4000)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        engine.shutdown(deadline_s=3600)
    timer.join()
    assert receiver.wait().reason == "cancelled"
    assert not is_running(pid)


def test_killed_while_draining(engine: ProcessEngine) -> None:
    receivers = decoding(engine)
    patient = threading.Thread(target=engine.shutdown, args=(3600,))
    patient.start()
    wait_until(lambda: not engine.health().ok)
    os.kill(pid_of(engine), signal.SIGKILL)
    for receiver in receivers:
        assert receiver.wait().code == "engine_died"
    patient.join(TIMEOUT_S)
    assert not patient.is_alive()


OWNER = """
import sys
sys.path.insert(0, sys.argv[1])
from engine_fixtures import scripted_config, generate
from scripted_child import PROGRAM, SLOW, HANGS
from freehold.engine.remote import ProcessEngine
engine = ProcessEngine.start(scripted_config(), program=PROGRAM)
engine.submit(generate("a", (HANGS if sys.argv[2] == "hanging" else SLOW,), max_tokens=4000), lambda event: None)
print(engine.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("state", "number"),
    [("busy", signal.SIGKILL), ("hanging", signal.SIGKILL), ("stopped", signal.SIGKILL), ("busy", signal.SIGTERM)],
)
def test_no_process_outlives_its_owner(state: str, number: signal.Signals) -> None:
    owner = processes.start(
        [sys.executable, "-c", OWNER, str(HERE), state], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner.stdin, owner.stdout:
        pid = int(owner.stdout.readline())
        assert is_running(pid)
        if state == "stopped":
            os.kill(pid, signal.SIGSTOP)
        owner.send_signal(number)
        owner.wait(TIMEOUT_S)
        ended_s = time.monotonic()
        wait_until(lambda: not is_running(pid))
        assert time.monotonic() - ended_s < 10
