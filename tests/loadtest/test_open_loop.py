"""Loads at a rate: intended starts, what waits for a slot, and a server that stops."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.loadtest.runs import Run, StubServer, bench, stored

from freehold.loadtest import saturation
from freehold.loadtest.arrivals import start_times
from freehold.loadtest.results import Load

Against = Callable[..., Run]


def opened(rate: float | str, **fields: object) -> list[Load]:
    return [Load(kind="open", request_rate=rate, **fields)]  # type: ignore[arg-type]


def test_requests_start_when_the_schedule_says(against: Against) -> None:
    load = opened(40.0, burstiness=0.5)
    run = against(loads=load, num_prompts=40, lengths=(4, 2))
    intended = start_times(load[0], 40, run.measurement.seed)
    assert [record.intended_s for record in run.measurement.records] == pytest.approx(intended)
    assert all(record.taken_up_s >= record.intended_s for record in run.measurement.records)
    received = np.sort([truth.received_s - run.measurement.origin_s for _, truth in run.pairs])
    late = np.subtract(received, intended)
    assert late.min() > -1e-4
    assert np.median(late) < 0.02 + 2 * max(run.lateness_s)


def test_starts_dont_wait_for_answers(against: Against) -> None:
    """Answers take twenty times as long as the gaps between requests."""
    run = against({"first_s": 0.4}, loads=opened(50.0, burstiness="inf"), num_prompts=20, lengths=(4, 1))
    assert run.point.max_concurrent_requests >= 16
    assert run.point.duration < 20 * 0.4 / 2, "half of what they take one after the other"


def test_all_at_once(against: Against) -> None:
    run = against({"first_s": 0.2}, loads=opened("inf"), num_prompts=20, lengths=(4, 1))
    assert run.point.max_concurrent_requests == 20


def test_time_for_a_slot_counts_from_the_intended_start(against: Against) -> None:
    """Ten requests at once, one at a time, 50 ms each: the last one waits for all others."""
    run = against({"first_s": 0.05}, loads=opened("inf", max_concurrency=1), num_prompts=10, lengths=(4, 1))
    point = run.point
    assert point.max_concurrent_requests == 1
    assert point.client_queue is not None
    assert point.latencies["e2el"].median < point.from_intended["e2el"].mean / 2
    waited = [record.queue_s for record in run.measurement.records]
    assert np.diff(sorted(waited)).min() >= 0.049
    assert point.from_intended["e2el"].mean == pytest.approx(
        np.mean([record.queue_s + record.e2e_s for record in run.measurement.records]) * 1000
    )
    assert point.from_intended["e2el"].percentiles["99"] > 450
    assert point.client.schedule_delay_ms < 50 + 2000 * max(run.lateness_s), "waiting isn't the client being late"


def test_a_server_that_stops_shows_in_every_request_it_should_have_answered(tmp_path: Path) -> None:
    """be-05: stopped for a second (SIGSTOP), it delays all that were due meanwhile, not only those in flight."""
    with StubServer() as server:
        timer = threading.Timer(0.5, _stop, [server.pid, 1.0])
        timer.start()
        run = bench(server, tmp_path, loads=opened(50.0, max_concurrency=4, burstiness="inf"), num_prompts=90)
        timer.join()
    due = [record for record in run.measurement.records if record.ended_s - record.intended_s > 0.1]
    assert len(due) >= 40, "50 a second were due"
    assert run.point.from_intended["e2el"].percentiles["90"] > 600
    # From send, only those in flight are slow: what a tester reports that leaves the others out.
    assert run.point.latencies["e2el"].percentiles["90"] < run.point.from_intended["e2el"].percentiles["90"] / 2


def _stop(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


@pytest.fixture
def is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over-saturation is told after a second, not thirty."""
    monkeypatch.setattr(saturation, "MIN_S", 1.0)
    monkeypatch.setattr(saturation, "_JUDGE_S", 0.25)


@pytest.mark.usefixtures("is_quick")
def test_a_point_that_asks_more_than_the_server_can_answer_ends_early(against: Against) -> None:
    """Twenty a second, of a server that takes a tenth of a second for each: half of them pile up."""
    run = against(
        {"serial_s": 0.1}, loads=opened(20.0), num_prompts=200, repeats=2, lengths=(4, 1), detect_saturation=True
    )
    point, stopped = run.point, run.point.stopped
    assert stopped is not None
    assert 1.0 <= stopped.after_s < 8
    assert point.completed + stopped.num_broken_off + stopped.num_unasked == 200
    assert stopped.num_broken_off >= 4
    assert "over_saturated" in {each.code for each in point.invalid}
    assert point.duration == pytest.approx(stopped.after_s, abs=0.3), "the time that brought no answers counts"
    assert len(point.repeats) == 1, "another repeat would show the same"
    assert point.is_complete
    assert stored(run.path).stopped == stopped, "it isn't measured again"
    assert len(run.truths) < 200


@pytest.mark.usefixtures("is_quick")
def test_a_point_that_the_server_keeps_refusing_ends_early(against: Against) -> None:
    """Its queue is full and stays so: neither those in flight nor TTFT grow."""
    behaviours = [{}, {"status": 429}, {"status": 503}]
    run = against(behaviours, loads=opened(40.0), num_prompts=200, lengths=(4, 1), detect_saturation=True)
    stopped = run.point.stopped
    assert stopped is not None
    assert stopped.sign == "refusals"
    assert stopped.num_unasked > 20
    assert stored(run.path).stopped == stopped


@pytest.mark.usefixtures("is_quick")
def test_a_rate_that_the_server_can_answer_is_measured_to_its_end(against: Against) -> None:
    run = against({"serial_s": 0.01}, loads=opened(40.0), num_prompts=50, lengths=(4, 1), detect_saturation=True)
    assert run.point.stopped is None
    assert run.point.completed == 50
    assert "over_saturated" not in {each.code for each in run.point.invalid}


def test_a_rate_that_a_cap_prevents_is_flagged(against: Against) -> None:
    run = against(
        {"first_s": 0.05}, loads=opened(100.0, burstiness="inf", max_concurrency=1), num_prompts=10, lengths=(4, 1)
    )
    assert "rate_not_reached" in {each.code for each in run.point.invalid}
