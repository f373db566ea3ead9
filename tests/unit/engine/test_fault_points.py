"""Errors, waits and kills at every fault point, seen from outside: each request ends once, the ledger is exact, no
block stays held, and the engine is back by itself with the same tokens."""

import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_fixtures import TIMEOUT_S, Receiver, generate, scripted_config, wait_until
from fault_child import pids_of, program
from msgspec import structs

from freehold.engine import watch
from freehold.engine.client import Engine
from freehold.engine.remote import ProcessEngine
from freehold.errors import EngineError
from freehold.faults import Error, Fault, Forced, Nth, Point, Switch, Wait, armed

STALL_S = 5.0
"""A stalled engine is not ready after so long, at most."""

# When each strikes: once some requests run and others wait.
LOOP_POINTS = {
    Point.INBOX_TAKE: 5,
    Point.PLAN: 5,
    Point.ALLOCATE: 5,
    Point.EVICT: 1,
    Point.SUBMIT: 5,
    Point.COPY: 1,
    Point.COLLECT: 5,
    Point.APPLY: 5,
    Point.PUBLISH: 5,
    Point.MASKS: 5,
}
IPC_POINTS = {Point.IPC_SEND: 5, Point.IPC_RECEIVE: 2}
POINTS = LOOP_POINTS | IPC_POINTS
PLACES = {
    **dict.fromkeys((Point.PLAN, Point.ALLOCATE, Point.EVICT), "at: plan"),
    **dict.fromkeys((Point.SUBMIT, Point.COPY), "at: submit"),
    Point.INBOX_TAKE: "at: inbox",
    Point.COLLECT: "at: collect",
    Point.APPLY: "at: apply",
    Point.PUBLISH: "at: publish",
    Point.MASKS: "at: masks",
    Point.IPC_SEND: "at: publish|has said nothing",
    Point.IPC_RECEIVE: "requests have not reached it",
}

# A pool that holds little more than the longest request, so that blocks are evicted; prompts that begin alike in part
# of a block, so that blocks are copied.
CONFIG = scripted_config(
    block_size=16, kv_cache_bytes=16 * 16 * 1024, max_model_len=200, max_num_seqs=3, max_num_batched_tokens=64
)
PROMPTS = [(*range(20), *(1000 + 100 * i + k for k in range(40))) for i in range(8)]
NUM_IDS = 70


def expected(prompt: Sequence[int]) -> list[int]:
    """The scripted backend echoes."""
    return [prompt[i % len(prompt)] for i in range(NUM_IDS)]


def submit_all(engine: Engine | ProcessEngine) -> list[Receiver | None]:
    """All prompts; None for those that came too late."""
    receivers: list[Receiver | None] = []
    for i, prompt in enumerate(PROMPTS):
        receiver = Receiver()
        try:
            engine.submit(generate(str(i), prompt, max_tokens=NUM_IDS), receiver)
        except EngineError:
            assert not engine.health().ok
            receivers.append(None)
        else:
            receivers.append(receiver)
    return receivers


def check_ends(receivers: Sequence[Receiver | None], codes: set[str]) -> int:
    """Each ended once: with all its ids, or with an error and the first of them. Returns how many failed."""
    num_failed = 0
    for prompt, receiver in zip(PROMPTS, receivers, strict=True):
        if receiver is None:
            continue
        finish = receiver.wait()
        ids = expected(prompt)
        if finish.reason == "failed":
            num_failed += 1
            assert finish.code in codes
            assert receiver.token_ids == ids[: len(receiver.token_ids)]
        else:
            assert (finish.reason, receiver.token_ids) == ("length", ids)
    return num_failed


def check_whole(engine: ProcessEngine) -> None:
    """It is back, gives every token, and its own checks, when idle and after every step, don't end it."""
    wait_until(lambda: engine.health().ok)
    pid = engine.pid
    receivers = submit_all(engine)
    assert None not in receivers
    assert check_ends(receivers, set()) == 0
    wait_until(lambda: engine._watch is not None and engine._watch.is_idle)
    time.sleep(0.1)
    assert engine.pid == pid
    engine.ledger().check(0)


@contextmanager
def started(lives: Path, life: int, *words: str) -> Iterator[ProcessEngine]:
    with ProcessEngine.start(CONFIG, program=program(lives, life, "CHECK", *words)) as engine:
        yield engine
    engine.ledger().check(0)


def both_ways() -> Iterator[Any]:
    """Every point with an error and a kill; by default each point with one of them."""
    for i, point in enumerate(POINTS):
        for k, action in enumerate(("error", "kill")):
            marks = [pytest.mark.slow] if (i + k) % 2 else []
            yield pytest.param(point, action, marks=marks, id=f"{point.name}-{action}")


@pytest.mark.parametrize(("point", "action"), list(both_ways()))
def test_the_engine_dies_cleanly_and_comes_back(point: Point, action: str, tmp_path: Path) -> None:
    with started(tmp_path / "lives", 1, f"{point.name}:{action}:{POINTS[point]}") as engine:
        pid = engine.pid
        receivers = submit_all(engine)
        num_failed = check_ends(receivers, {"engine_died", "engine_failed"})
        wait_until(lambda: engine.pid not in {None, pid})
        is_struck_idle = point is Point.IPC_SEND  # by a heartbeat
        assert num_failed > 0 or None in receivers or is_struck_idle
        check_whole(engine)
        assert len(pids_of(tmp_path / "lives")) == 2


def test_a_step_that_fails_ends_its_requests_alone(tmp_path: Path) -> None:
    with started(tmp_path / "lives", 1, "COLLECT:step-error:9") as engine:
        pid = engine.pid
        num_failed = check_ends(submit_all(engine), {"step_failed"})
        assert 0 < num_failed <= CONFIG.max_num_seqs
        check_whole(engine)
        assert engine.pid == pid


def check_wait(point: Point, folder: Path) -> str:
    """The engine hangs for 6 s. Returns what is wrong, if anything is."""
    with started(folder / point.name, 1, f"{point.name}:wait=6:{POINTS[point]}") as engine:
        pid, started_s = engine.pid, time.monotonic()
        receivers = submit_all(engine)
        reasons = set[str]()
        noticed_s: float | None = None
        while any(receiver is not None and not receiver.ended.is_set() for receiver in receivers) or (
            noticed_s is None and time.monotonic() - started_s < STALL_S + 1
        ):
            health = engine.health()
            if not health.ok:
                noticed_s = noticed_s or time.monotonic() - started_s
                reasons.add(re.sub(r"\d+ s", "… s", health.reason))
                assert health.code == "engine_stalled"
            time.sleep(0.02)
            assert time.monotonic() - started_s < TIMEOUT_S
        assert check_ends(receivers, set()) == 0
        check_whole(engine)
        assert engine.pid == pid, "nobody has died"
    if noticed_s is None or noticed_s > STALL_S + 0.5:  # the point is reached some moments after the start
        return f"{point.name}: noticed after {noticed_s} s"
    if not any(re.search(PLACES[point], reason) for reason in reasons):
        return f"{point.name}: reported as {reasons}"
    return ""


def test_a_wait_anywhere_is_noticed_named_and_outlived(tmp_path: Path) -> None:
    """All points side by side, each in an engine of its own, as most of the time is spent waiting."""
    with ThreadPoolExecutor(len(POINTS)) as pool:
        problems = [found for found in pool.map(lambda point: check_wait(point, tmp_path), POINTS) if found]
    assert not problems


# ---------------------------------------------------------------------- the server's side of the connection


class PlantedError(Exception):
    """Not one that anything expects."""


def test_a_message_that_can_t_be_sent_is_refused_and_counted(tmp_path: Path) -> None:
    with started(tmp_path / "lives", 0) as engine:
        with armed(Fault(Point.IPC_SEND, Error(PlantedError()))), pytest.raises(PlantedError):
            engine.submit(generate("a", (5,), max_tokens=3), Receiver())
        assert (engine.ledger().received, engine.ledger().refused) == (1, 1)
        check_whole(engine)


def test_a_supervisor_that_fails_starts_anew(tmp_path: Path) -> None:
    with started(tmp_path / "lives", 0) as engine:
        pid = engine.pid
        receivers = submit_all(engine)
        with armed(Fault(Point.IPC_RECEIVE, Error(PlantedError()), Nth(1))):
            wait_until(lambda: engine.pid != pid)
        assert check_ends(receivers, {"engine_died"}) > 0
        check_whole(engine)
        assert len(pids_of(tmp_path / "lives")) == 2


@pytest.mark.parametrize("point", [Point.IPC_SEND, Point.IPC_RECEIVE], ids=lambda point: point.name)
def test_a_supervisor_that_is_held_up_is_noticed_and_goes_on(
    point: Point, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a sender that never lets go of the lock: health needs none."""
    monkeypatch.setattr(watch, "SILENT_S", 1.5)
    with started(tmp_path / "lives", 0) as engine:
        pid = engine.pid
        with armed(Fault(point, Wait(), Nth(1))):
            sending = threading.Thread(target=submit_all, args=(engine,))
            sending.start()
            started_s = time.monotonic()
            wait_until(lambda: not engine.health().ok)
            assert time.monotonic() - started_s < STALL_S
            assert "supervisor has been held up" in engine.health().reason
        sending.join(TIMEOUT_S)
        wait_until(lambda: engine.num_live == 0)
        check_whole(engine)
        assert engine.pid == pid


def test_a_drain_that_can_t_be_sent_still_ends_the_engine(tmp_path: Path) -> None:
    engine = ProcessEngine.start(CONFIG, program=program(tmp_path / "lives", 0))
    receivers = submit_all(engine)
    with armed(Fault(Point.IPC_SEND, Error(PlantedError()))):
        engine.shutdown(deadline_s=TIMEOUT_S)
    for receiver in receivers:
        assert receiver is not None
        assert receiver.wait().reason in {"cancelled", "length"}
    engine.ledger().check(0)


# ---------------------------------------------------------------------- the engine in a thread


@pytest.mark.parametrize("point", LOOP_POINTS, ids=lambda point: point.name)
def test_in_a_thread_an_error_ends_the_engine_with_a_reason(point: Point) -> None:
    engine = Engine.start(CONFIG)
    with armed(Fault(point, Error(PlantedError("planted")), Nth(LOOP_POINTS[point]))):
        receivers = submit_all(engine)
        num_failed = check_ends(receivers, {"engine_failed"})
        wait_until(lambda: engine._is_ended)
    assert num_failed > 0 or None in receivers
    assert "planted" in engine.health().reason
    engine.shutdown()
    engine.ledger().check(0)


@pytest.mark.parametrize("point", LOOP_POINTS, ids=lambda point: point.name)
def test_in_a_thread_a_wait_is_noticed_and_named(point: Point) -> None:
    config = structs.replace(CONFIG, stall_timeout_s=0.2)
    release = threading.Event()
    with Engine.start(config) as engine, armed(Forced(Switch.CHECK)):
        with armed(Fault(point, Wait(until=release), Nth(LOOP_POINTS[point]))):
            receivers = submit_all(engine)
            wait_until(lambda: not engine.health().ok)
            assert re.search(PLACES[point], engine.health().reason)
            release.set()
            assert check_ends(receivers, set()) == 0
            wait_until(lambda: engine.health().ok)
        wait_until(lambda: engine._core._scheduler.pool.num_held == 0)
    assert engine.fault == ""


def test_a_core_that_doesn_t_wake_up_is_noticed() -> None:
    """It sleeps, requests come, and it doesn't take them."""
    config = structs.replace(CONFIG, stall_timeout_s=0.2)
    release = threading.Event()
    with armed(Fault(Point.INBOX_TAKE, Wait(until=release), Nth(1))), Engine.start(config) as engine:
        time.sleep(0.3)
        assert engine.health().ok, "nothing has come yet"
        receivers = submit_all(engine)
        wait_until(lambda: not engine.health().ok)
        assert "at: inbox" in engine.health().reason
        release.set()
        assert check_ends(receivers, set()) == 0


def test_a_backend_that_can_t_be_closed_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    with armed(Fault(Point.CLOSE, Error(PlantedError()))):
        engine = Engine.start(CONFIG)
        receivers = submit_all(engine)
        engine.shutdown(TIMEOUT_S)
    assert check_ends(receivers, set()) == 0
    assert "failed to close" in caplog.text
    engine.ledger().check(0)
    caplog.clear()


def test_a_backend_that_takes_long_to_close_is_waited_for_within_bounds() -> None:
    release = threading.Event()
    with armed(Fault(Point.CLOSE, Wait(until=release))):
        engine = Engine.start(structs.replace(CONFIG, stall_timeout_s=0.3))
        started_s = time.monotonic()
        engine.shutdown()
        assert 0.3 <= time.monotonic() - started_s < TIMEOUT_S / 2
        release.set()
        assert engine._closed.wait(TIMEOUT_S)
