"""Preemption and eviction forced before every step, or every second or third: all still ends, and with the same ids."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_trace import Case, Run, Trace, check_results
from test_scheduler import traces

from freehold.faults import EveryNth, Forced, Switch, armed

FORCED = [
    [Forced(Switch.PREEMPT)],
    [Forced(Switch.EVICT)],
    [Forced(Switch.PREEMPT), Forced(Switch.EVICT)],
    [Forced(Switch.PREEMPT, EveryNth(2)), Forced(Switch.EVICT, EveryNth(3))],
    [Forced(Switch.PREEMPT, EveryNth(3)), Forced(Switch.EVICT, EveryNth(2))],
]


@settings(max_examples=60, deadline=None)
@given(traces(), st.sampled_from(FORCED))
def test_any_trace(trace: Trace, forced: list[Forced]) -> None:
    with armed(*forced):
        check_results(Run(trace).run())


@pytest.mark.parametrize(
    "forced", FORCED, ids=lambda forced: "+".join(f"{f.switch.name}-{f.when.number}" for f in forced)
)
def test_that_it_happens(forced: list[Forced]) -> None:
    """Four that begin alike run together: preempted or evicted again and again, and what that costs is counted."""
    cases = [Case(num_prompt=20, num_answer=20, max_tokens=20, stops=False, family=0, num_family=18) for _ in range(4)]
    trace = Trace(cases, num_blocks=60, block_size=4, max_num_seqs=4, budget=32)
    free = Run(trace).run()
    with armed(*forced):
        run = Run(trace).run()
    check_results(run)
    assert [result.digests for result in run.results] == [result.digests for result in free.results]
    switches = {f.switch for f in forced}
    assert (run.scheduler.num_preemptions > 20) == (Switch.PREEMPT in switches)
    if switches == {Switch.PREEMPT, Switch.EVICT}:
        assert run.scheduler.counts.recomputed > 50 > free.scheduler.counts.recomputed
