"""Requests that must end by some time, in every state."""

import random

import pytest
from scheduler_trace import Case, Run, Trace, check_results

from freehold.backends.script import FailStep
from freehold.sched.check import check_idle


def run_to(run: Run, num_steps: int) -> None:
    while run.num_steps < num_steps:
        run.step()


@pytest.mark.parametrize("deadline_s", [1.0, 2.0, 3.0, 5.0, 9.0, 30.0])
def test_a_request_ends_at_its_deadline_and_its_blocks_return_a_step_later(deadline_s: float) -> None:
    """While it waits behind others, in the middle of its prompt, and in the middle of its answer."""
    cases = [Case(num_prompt=10, num_answer=12, max_tokens=12, stops=False)]
    cases += [Case(num_prompt=40, num_answer=99, max_tokens=99, stops=False, deadline_s=deadline_s)]
    run = Run(Trace(cases, num_blocks=64, max_num_seqs=2, budget=8))
    run_to(run, int(deadline_s))
    assert not run.results[1].finishes
    run.step()
    (finish,) = run.results[1].finishes
    assert (finish.reason, finish.code) == ("failed", "deadline_exceeded")
    assert f"within {deadline_s:g} s and has not after {deadline_s:g} s" in finish.message
    assert run.scheduler.pool.num_held == sum(len(request.table) for request in run.scheduler.running)
    check_results(run.run())
    assert run.results[0].finishes[0].reason == "length"


def test_one_that_has_ended_in_time_is_left_alone() -> None:
    run = Run(Trace([Case(num_prompt=3, num_answer=5, max_tokens=5, deadline_s=100.0)], num_blocks=64)).run()
    assert run.results[0].finishes[0].reason in {"stop", "length"}
    assert run.scheduler.num_deadlines == 0
    run.loop.now_s = 1000.0
    assert run.scheduler.end_overdue() == []


@pytest.mark.parametrize("deadline_s", [float(s) for s in range(1, 14)])
def test_a_leader_whose_time_is_up_is_followed_by_another(deadline_s: float) -> None:
    """The same while they follow: those in time get their answer, whoever computed the prompt."""
    cases = [Case(60, 9, 9, stops=False, family=0, num_family=60, deadline_s=deadline_s)]
    cases += [Case(60, 9, 9, stops=False, family=0, num_family=60) for _ in range(2)]
    cases += [Case(60, 9, 9, stops=False, family=0, num_family=60, deadline_s=deadline_s) for _ in range(2)]
    run = Run(Trace(cases, num_blocks=200, max_num_seqs=8, budget=16)).run()
    check_results(run)
    assert [run.results[i].finishes[0].reason for i in (1, 2)] == ["length", "length"]


def test_preempted_and_in_flight_requests_end_in_time() -> None:
    """A pool that holds little more than the largest, faults included; deadlines strike in every state."""
    source = random.Random(11)
    cases = [
        Case(
            num_prompt=source.randint(1, 30),
            num_answer=20,
            max_tokens=source.randint(1, 40),
            arrives_at=3 * i,
            stops=False,
            fault=FailStep() if source.random() < 0.02 else None,
            fault_at=source.randint(0, 9),
            deadline_s=float(source.randint(1, 80)) if source.random() < 0.8 else None,
        )
        for i in range(600)
    ]
    run = Run(Trace(cases, num_blocks=22, max_num_seqs=6, budget=12)).run()
    check_results(run)
    assert run.scheduler.num_preemptions > 20
    overdue = [r for r in run.results if r.finishes[0].code == "deadline_exceeded"]
    assert 50 < len(overdue) < 500
    assert sum(not result.token_ids for result in overdue) > 5, "some had not begun to answer"


def test_many_far_deadlines_leave_no_heap_behind() -> None:
    """Requests that end in time must not be remembered until their deadline."""
    cases = [Case(1, 1, 1, arrives_at=i // 4, deadline_s=1e9) for i in range(900)]
    run = Run(Trace(cases, num_blocks=64, max_num_seqs=8), check_every_step=False)
    most = 0
    while run.step():
        most = max(most, run.scheduler._deadlines.num_entries)
        assert run.scheduler._deadlines.num_entries <= 2 * len(run.scheduler.live) + 1
    assert 0 < most < 64
    check_idle(run.scheduler)
    assert run.scheduler._deadlines.num_entries == 0
