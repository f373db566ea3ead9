"""An engine whose cache is too small says so, with the numbers that would help; another one is silent."""

import re
from dataclasses import replace

import pytest
from scheduler_trace import Case, Run, Trace, check_results

from freehold.sched.thrash import PERIOD_S, THRASH_SHARE, WINDOW_S

CROWD = Trace(
    [Case(num_prompt=30, num_answer=70, max_tokens=90, arrives_at=2 * i, stops=False) for i in range(40)],
    num_blocks=60,
    max_num_seqs=12,
    budget=64,
    step_s=0.25,
)
"""Each needs 30 blocks of 4 at its end, so that two of them fill the pool, and begins with 8."""


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "freehold.sched.thrash"]


def test_a_trace_that_thrashes_is_reported_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(CROWD)
    shares = []
    while run.step():
        shares.append(run.scheduler.alarm.share)
    check_results(run)
    counts = run.scheduler.counts
    assert counts.recomputed / (counts.computed + counts.recomputed) > THRASH_SHARE
    assert max(shares) > THRASH_SHARE
    num_periods = run.loop.now_s / PERIOD_S
    assert 1 <= len(warnings(caplog)) == run.scheduler.alarm.num_warnings <= num_periods + 1
    assert "--kv-cache-memory-bytes" in warnings(caplog)[0]
    assert "from 12 to" in warnings(caplog)[0]


@pytest.mark.parametrize("setting", ["kv", "seqs"])
def test_the_numbers_in_the_warning_help(setting: str, caplog: pytest.LogCaptureFixture) -> None:
    Run(CROWD).run()
    message = warnings(caplog)[0]
    num_blocks = int(re.search(r"at least (\d+)M", message)[1])  # of a MiB each
    num_seqs = int(re.search(r"from 12 to (\d+)", message)[1])
    assert CROWD.num_blocks < num_blocks <= 12 * 31, "no more than all that run can need"
    assert 1 <= num_seqs <= 3
    caplog.clear()
    better = replace(CROWD, num_blocks=num_blocks) if setting == "kv" else replace(CROWD, max_num_seqs=num_seqs)
    run = Run(better).run()
    check_results(run)
    assert warnings(caplog) == []
    assert run.scheduler.counts.recomputed <= 0.02 * run.scheduler.counts.computed


def test_preemption_now_and_then_is_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    """An interactive request displaces a batch request once a minute; what that computes again is little."""
    cases = [Case(30, 70, 2000, stops=False, service="batch")]
    cases += [Case(30, 5, 5, stops=False, arrives_at=240 * (i + 1)) for i in range(6)]
    run = Run(Trace(cases, num_blocks=600, max_num_seqs=1, budget=64, step_s=0.25), check_every_step=False).run()
    assert run.scheduler.num_preemptions >= 4
    assert warnings(caplog) == []
    assert not run.scheduler.alarm.is_thrashing


def test_one_preemption_of_a_quiet_engine_is_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    """Two long answers meet in a pool for one and a half; one of them starts over, and little else goes on."""
    cases = [Case(40, 60, 40, stops=False) for _ in range(2)]
    run = Run(Trace(cases, num_blocks=30, max_num_seqs=4, budget=64, step_s=1.0)).run()
    assert 1 <= run.scheduler.num_preemptions <= 2
    assert run.scheduler.counts.recomputed > 0.1 * run.scheduler.counts.computed
    assert warnings(caplog) == []


def test_the_alarm_forgets() -> None:
    run = Run(replace(CROWD, cases=[*CROWD.cases, Case(3, 9, 9, arrives_at=9000, stops=False)]), check_every_step=False)
    was_thrashing = False
    while run.step():
        was_thrashing |= run.scheduler.alarm.is_thrashing
    assert was_thrashing
    assert not run.scheduler.alarm.is_thrashing
    assert len(run.scheduler.alarm._samples) <= WINDOW_S + 1
