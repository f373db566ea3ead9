"""The scheduler over random traces, refereed by the scripted model."""

import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_trace import Case, Run, Trace, check_results

from freehold.backends.script import FailStep, NotFinite
from freehold.sched.request import Status

MAX_LEN = 40


@st.composite
def traces(draw: st.DrawFn, *, with_aborts: bool = True, with_faults: bool = True) -> Trace:
    block_size = draw(st.sampled_from([1, 2, 4, 7]))
    smallest = -(-MAX_LEN // block_size)
    num_blocks = draw(st.one_of(st.just(smallest), st.integers(smallest, 4 * smallest)))
    cases = []
    for _ in range(draw(st.integers(1, 10))):
        num_prompt = draw(st.integers(1, MAX_LEN - 1))
        fault = draw(st.sampled_from([None, None, None, NotFinite(), FailStep()])) if with_faults else None
        family = draw(st.sampled_from([None, 0, 1]))
        num_family = draw(st.integers(1, MAX_LEN))
        is_twin = family is not None and num_prompt <= num_family  # equal prompts have one script
        cases.append(
            Case(
                num_prompt=num_prompt,
                num_answer=12 if is_twin else draw(st.integers(1, 30)),
                max_tokens=draw(st.integers(1, 50)),
                arrives_at=draw(st.integers(0, 25)),
                abort_at=draw(st.one_of(st.none(), st.none(), st.integers(0, 60))) if with_aborts else None,
                stops=family == 0 if is_twin else draw(st.booleans()),
                fault=None if is_twin else fault,
                fault_at=draw(st.integers(0, 20)),
                family=family,
                num_family=num_family,
                namespace=draw(st.sampled_from(["", "", "other"])),
                siblings=draw(st.sampled_from(["", "one", "two"])),
                service=draw(st.sampled_from(["interactive", "agent", "batch"])),
                priority=draw(st.sampled_from([0, 0, -100, 1, 100])),
                deadline_s=draw(st.sampled_from([None, None, 5.0, 30.0])) if with_faults else None,
            )
        )
    return Trace(
        cases=cases,
        num_blocks=num_blocks,
        block_size=block_size,
        max_num_seqs=draw(st.sampled_from([1, 2, 3, 8])),
        budget=draw(st.sampled_from([1, 2, 7, 16, 17, 64, 1000])),
        guess_rate=draw(st.sampled_from([None, None, 0.0, 0.6, 1.0])),
        seed=draw(st.integers(0, 1000)),
        prefix_caching=draw(st.booleans()),
        policy=draw(st.sampled_from(["priority", "priority", "fcfs"])),
        step_s=draw(st.sampled_from([0.0, 1.0, 20.0])),
        most_steps=draw(st.sampled_from([1, 1, 2, 5])),
    )


@settings(max_examples=300, deadline=None)
@given(traces())
def test_every_request_ends_once_with_its_scripted_ids(trace: Trace) -> None:  # sp-01, sp-02, sp-05
    check_results(Run(trace).run())


@settings(max_examples=100, deadline=None)
@given(traces(with_aborts=False, with_faults=False), st.data())
def test_neighbours_chunks_and_pool_change_nothing(trace: Trace, data: st.DataObject) -> None:
    """The same requests under other sizes give the same ids and digests."""
    roomy = Trace(cases=trace.cases, num_blocks=-(-1000 // trace.block_size), block_size=trace.block_size, budget=1000)
    run, free = Run(trace).run(), Run(roomy).run()
    for index, (tight_result, free_result) in enumerate(zip(run.results, free.results, strict=True)):
        room = trace.num_blocks * trace.block_size - trace.cases[index].num_prompt
        assert tight_result.token_ids == free_result.token_ids[:room]
        assert tight_result.digests == free_result.digests[:room]


def test_aborts_in_every_state_leave_nothing() -> None:
    """Thousands of requests aborted while waiting, in the middle of a prompt, decoding, preempted, drafting, or after
    their end; the pool holds little more than the largest."""
    source = random.Random(7)
    num_preemptions = 0
    for guess_rate in (None, 0.5):
        cases = [
            Case(
                num_prompt=source.randint(1, 30),
                num_answer=20,
                max_tokens=source.randint(1, 40),
                arrives_at=5 * i,
                abort_at=5 * i + source.randint(0, 80),
                stops=source.random() < 0.5,
            )
            for i in range(900)
        ]
        run = Run(Trace(cases, num_blocks=22, max_num_seqs=6, budget=12, guess_rate=guess_rate)).run()
        check_results(run)
        num_preemptions += run.scheduler.num_preemptions
        reasons = {result.finishes[0].reason for result in run.results}
        assert reasons == {"stop", "length", "cancelled"}
    assert num_preemptions > 50


@pytest.mark.parametrize("budget", [1, 7, 64])
@pytest.mark.parametrize("guess_rate", [None, 0.5])
def test_a_pool_that_just_holds_the_largest_request_finishes_all(budget: int, guess_rate: float | None) -> None:
    """kv-03, kv-04: sixteen that all want the whole pool, and want their next block in the same step."""
    cases = [Case(num_prompt=8, num_answer=56, max_tokens=56, stops=False) for _ in range(16)]
    trace = Trace(cases, num_blocks=16, block_size=4, max_num_seqs=16, budget=budget, guess_rate=guess_rate)
    run = Run(trace).run()
    check_results(run)
    assert all(len(result.token_ids) == 56 for result in run.results)


def test_a_long_prompt_does_not_hold_up_decoding() -> None:
    """While a prompt takes many steps, every request that decodes gets an id in each of them."""
    cases = [Case(num_prompt=2, num_answer=100, max_tokens=100, stops=False) for _ in range(3)]
    cases.append(Case(num_prompt=800, num_answer=1, max_tokens=1, arrives_at=5))
    run = Run(Trace(cases, num_blocks=400, max_num_seqs=4, budget=16))
    while run.num_steps < 10:
        run.step()
    for _ in range(20):
        before = [len(result.token_ids) for result in run.results]
        run.step()
        after = [len(result.token_ids) for result in run.results]
        assert [a - b for a, b in zip(after, before, strict=True)] == [1, 1, 1, 0]
    check_results(run.run())


def test_an_old_long_prompt_does_not_hold_up_decoding_either() -> None:
    """Even one that is first in order, as after a preemption: it leaves a token for each that decodes."""
    cases = [Case(num_prompt=300, num_answer=5, max_tokens=5)]
    cases += [Case(num_prompt=1, num_answer=200, max_tokens=200, stops=False) for _ in range(3)]
    run = Run(Trace(cases, num_blocks=400, max_num_seqs=4, budget=304))
    run.step()  # all four start: 300 + 1 + 1 + 1 inputs
    oldest = run.scheduler.running[0]
    run.scheduler.preempt(oldest)
    run.scheduler.limits = type(run.limits)(1600, 1000, 4, 4, 8)
    for _ in range(3):
        run.step()
    assert run.scheduler.running[0] is oldest
    for _ in range(15):
        before = [len(result.token_ids) for result in run.results]
        run.step()
        after = [len(result.token_ids) for result in run.results]
        assert [a - b for a, b in zip(after, before, strict=True)][1:] == [1, 1, 1]
    check_results(run.run())


def test_no_more_is_preempted_than_needed() -> None:
    """Four of three blocks each fill the pool; the first one's fourth block costs the newest its place, and only it."""
    cases = [Case(num_prompt=9, num_answer=7, max_tokens=7, stops=False)]
    cases += [Case(num_prompt=5, num_answer=7, max_tokens=7, stops=False) for _ in range(3)]
    run = Run(Trace(cases, num_blocks=12, block_size=4, max_num_seqs=4, budget=64))
    run.scheduler.limits = type(run.limits)(48, 1000, 4, 4, 64)
    for index in range(4):  # without headroom, so that they all start
        run.scheduler.add(run._generate(index))
    run._arrivals.clear()
    for request in list(run.scheduler.waiting):
        request.table.extend(run.scheduler.pool.allocate(3))
        request.status, request.num_cached = Status.RUNNING, 0
        run.scheduler.running.append(request)
    run.scheduler.waiting.clear()
    check_results(run.run())
    assert run.scheduler.num_preemptions == 1


def test_starting_leaves_room_for_those_that_run() -> None:
    """What fits only by taking the last block that a running request will want waits instead."""
    cases = [Case(num_prompt=11, num_answer=6, max_tokens=6, stops=False)]
    cases.append(Case(num_prompt=20, num_answer=6, max_tokens=6, arrives_at=1, stops=False))
    run = Run(Trace(cases, num_blocks=8, block_size=4, max_num_seqs=4, budget=64)).run()
    check_results(run)
    assert run.scheduler.num_preemptions == 0


def test_one_token_requests_in_large_numbers_leave_nothing_behind() -> None:
    cases = [Case(num_prompt=1, num_answer=1, max_tokens=1, arrives_at=i // 8) for i in range(1000)]
    run = Run(Trace(cases, num_blocks=64, max_num_seqs=8)).run()
    check_results(run)
    for name, value in vars(run.scheduler).items():
        if isinstance(value, dict | list):
            assert not value, f"{name} still holds {len(value)}"


def test_planning_is_fast_enough() -> None:
    """At least 100,000 steps a minute of processor time with eight running; measured: millions."""
    cases = [Case(num_prompt=40, num_answer=50, max_tokens=50, stops=False, arrives_at=i) for i in range(400)]
    run = Run(Trace(cases, num_blocks=4096, max_num_seqs=8, budget=128), check_every_step=False)
    scheduler_s = 0.0
    plan, apply = run.scheduler.plan, run.scheduler.apply

    def timed(function):
        def call(*args, **kwargs):
            nonlocal scheduler_s
            started_s = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                scheduler_s += time.process_time() - started_s

        return call

    run.scheduler.plan, run.scheduler.apply = timed(plan), timed(apply)
    run.run()
    assert run.num_steps / scheduler_s * 60 > 100_000


@pytest.mark.parametrize("guess_rate", [0.0, 0.6])
@pytest.mark.parametrize("max_num_seqs", [2, 3])
def test_nobody_has_two_rows_in_a_step(guess_rate: float, max_num_seqs: int) -> None:
    """Siblings that share all but their last blocks: one is preempted for the other's next block, and there is room at
    once for it to start again."""
    twin = Case(1, 12, 24, stops=False, family=1, num_family=1, namespace="other", siblings="two")
    small = Case(1, 12, 1, family=0, num_family=1)
    cases = [small, twin, small, small, small, small, replace(twin, max_tokens=18)]
    trace = Trace(
        cases, num_blocks=40, block_size=1, max_num_seqs=max_num_seqs, budget=7, guess_rate=guess_rate,
        prefix_caching=False, step_s=0.0,
    )  # fmt: skip
    check_results(Run(trace).run())
