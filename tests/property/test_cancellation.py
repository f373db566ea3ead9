"""Requests cancelled in every state there is: their blocks are back after one step, whoever waited for what they were
computing takes over, and everyone else gets what they would have got."""

import random
from collections import Counter

import pytest
from scheduler_trace import Case, Run, Trace, check_results

from freehold.sched.request import Request, Status

NUM_CASES = 60


def busy_trace(seed: int, *, prefix_caching: bool = True) -> Trace:
    """More requests than fit, on a pool little larger than the longest, many of which begin alike."""
    source = random.Random(seed)
    cases = []
    for _ in range(NUM_CASES):
        arrives_at = source.randint(0, 60)
        num_prompt = source.randint(2, 60)
        num_family = max(1, num_prompt - source.randint(1, 8))  # the rest is its own, so that no two prompts are equal
        cases.append(
            Case(
                num_prompt=num_prompt,
                num_answer=40,
                max_tokens=source.randint(1, 30),
                arrives_at=arrives_at,
                abort_at=10**9,  # may be cancelled: by this test, not by the trace
                stops=False,
                family=arrives_at // 15,  # those that come at about the same time begin alike
                num_family=num_family,
            )
        )
    return Trace(
        cases, num_blocks=24, block_size=4, max_num_seqs=5, budget=12, seed=seed, prefix_caching=prefix_caching
    )


def state_of(request: Request, run: Run) -> str:
    """As fine as it matters to how a request is taken apart."""
    if request.leader is not None and request.status is Status.WAITING:
        return "following"
    if request.status is Status.WAITING:
        return "preempted" if request.num_reached else "queued"
    if any(other.leader is request for other in run.scheduler.waiting):
        return "leading"
    phase = "prefill" if request.num_planned < request.num_prompt else "decode"
    is_last = request.num_total >= request.max_total
    return "finishing" if is_last else f"{phase}, in flight" if request.num_in_flight else phase


def cancel_at_random(trace: Trace, source: random.Random, rate: float) -> tuple[Run, Counter[str]]:
    """Run a trace, and after some steps cancel a live request or two: as often in a rare state as in a common one."""
    run, states = Run(trace), Counter[str]()
    run._aborts.clear()
    is_more = True
    while is_more:
        is_more = run.step()
        by_state: dict[str, list[Request]] = {}
        for request in run.scheduler.live.values():
            by_state.setdefault(state_of(request, run), []).append(request)
        num_doomed = source.choice((1, 1, 2)) if source.random() < rate else 0
        doomed = [
            source.choice(by_state[state]) for state in source.sample(sorted(by_state), min(num_doomed, len(by_state)))
        ]
        for request in doomed:
            states[state_of(request, run)] += 1
            run._take(run.scheduler.abort(request.generate.request_id))
        if doomed:
            num_in_flight = len(run.scheduler.in_flight)
            assert num_in_flight <= 1
            is_more = run.step()
            for request in doomed:
                assert request.num_in_flight == 0
                assert len(request.table) == 0, "blocks are back one step after"
    assert run.scheduler.pool.num_held == 0
    check_results(run)
    return run, states


EVERY_STATE = {
    "queued",
    "following",
    "leading",
    "prefill, in flight",
    "decode, in flight",
    "finishing",
    "preempted",
}


def cancel_many(num_wanted: int) -> Counter[str]:
    states, seed = Counter[str](), 0
    while states.total() < num_wanted:
        rate = (0.1, 0.3, 1.0)[seed % 3]
        states += cancel_at_random(busy_trace(seed, prefix_caching=seed % 4 != 3), random.Random(seed), rate)[1]
        seed += 1
    return states


def test_cancelled_in_every_state() -> None:  # ab-03
    states = cancel_many(1000)
    assert set(states) >= EVERY_STATE, states
    assert min(states[state] for state in EVERY_STATE) >= 3, states


@pytest.mark.slow
def test_ten_thousand_cancelled_in_every_state() -> None:
    states = cancel_many(10_000)
    print(states)
    assert min(states[state] for state in EVERY_STATE) >= 50, states


def test_followers_take_over_at_once() -> None:
    """Three with one long beginning: two wait for the first. It is cancelled while its step runs, and they go on from
    what that has computed."""
    cases = [Case(num_prompt=60, num_answer=4, max_tokens=4, stops=False, family=0, num_family=58) for _ in range(3)]
    run = Run(Trace(cases, num_blocks=100, block_size=4, max_num_seqs=4, budget=64))
    run.step()
    leader, followers = run.scheduler.running[0], list(run.scheduler.waiting)
    assert [request.leader for request in followers] == [leader, leader]
    run._take(run.scheduler.abort(leader.generate.request_id))
    run.step()
    run.step()
    assert run.scheduler.running == followers
    assert [request.num_cached for request in followers] == [58, 58]
    while run.step():
        pass
    assert run.results[1].finishes[0].reason == run.results[2].finishes[0].reason == "length"
    assert run.scheduler.counts.recomputed == 0
