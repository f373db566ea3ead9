"""Classes, priorities and ageing over whole runs: who starts, who gives way, and that nobody waits for ever."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_trace import Case, Run, Trace, check_results

from freehold.protocol import MAX_PRIORITY, Generate, RequestId, Sampling, ServiceClass
from freehold.sched.draft import whose_turn
from freehold.sched.policy import CLASS_ALLOWANCE_S, PRIORITY_S
from freehold.sched.request import Request, Status


def request(run: Run, index: int) -> Request | None:
    """None before it comes and after it has ended."""
    return run.scheduler.live.get(str(index))


def waits(run: Run, index: int) -> bool:
    found = request(run, index)
    return found is not None and found.status is Status.WAITING


def has_started(run: Run, index: int) -> bool:
    found = request(run, index)
    return bool(run.results[index].finishes) if found is None else found.num_cached is not None


def gains(run: Run) -> list[int]:
    """Ids that each request gets in the next step."""
    before = [len(result.token_ids) for result in run.results]
    run.step()
    return [len(result.token_ids) - num for result, num in zip(run.results, before, strict=True)]


# ---------------------------------------------------------------------- nobody starves


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_after_its_allowance_a_request_starts_as_soon_as_those_before_it_are_done(data: st.DataObject) -> None:
    """However many interactive requests come, at every step, and for ever: until it starts, that is."""
    service: ServiceClass = data.draw(st.sampled_from(["agent", "batch"]))
    priority = data.draw(st.sampled_from([0, MAX_PRIORITY, -3]))
    allowance_s = CLASS_ALLOWANCE_S[service] + priority * PRIORITY_S
    source = random.Random(data.draw(st.integers(0, 10**6)))
    num_steps = data.draw(st.integers(5, 40))  # that the allowance lasts
    patient = Case(
        num_prompt=source.randint(1, 39),
        num_answer=5,
        max_tokens=source.randint(1, 20),
        arrives_at=3,
        stops=False,
        service=service,
        priority=priority,
    )
    stream = [
        Case(source.randint(1, 30), 9, source.randint(1, 9), arrives_at=i // 2, stops=False, family=i % 2, num_family=9)
        for i in range(4 * num_steps + 200)
    ]
    run = Run(
        Trace(
            [patient, *stream],
            num_blocks=data.draw(st.sampled_from([10, 25])),
            max_num_seqs=data.draw(st.sampled_from([1, 2, 5])),
            budget=data.draw(st.sampled_from([3, 16, 64])),
            step_s=allowance_s / num_steps,
        )
    )
    late = [i for i, case in enumerate(run.trace.cases) if case.arrives_at > patient.arrives_at + num_steps + 1]
    num_alone = 0
    while run.num_steps < 5 or waits(run, 0):
        assert not any(has_started(run, i) for i in late), "one that came after its allowance passed it"
        assert run.step()
        found = request(run, 0)
        is_next = found is not None and not any(r.rank < found.rank for r in run.scheduler.live.values())
        num_alone = num_alone + 1 if is_next and waits(run, 0) else 0
        assert num_alone < 4, "none is before it, and yet it doesn't start"
    assert has_started(run, 0)


@pytest.mark.parametrize("policy", ["priority", "fcfs"])
def test_waiting_requests_start_by_class_then_priority_then_arrival(policy) -> None:
    kinds = [("batch", 0), ("agent", 5), ("interactive", 1), ("agent", -5), ("interactive", -1), ("interactive", -1)]
    cases = [Case(3, 4, 4, stops=False), *(Case(3, 4, 4, stops=False, service=s, priority=p) for s, p in kinds)]
    run = Run(Trace(cases, num_blocks=64, max_num_seqs=1, policy=policy, step_s=0.0))
    ended: list[int] = []
    while len(ended) < len(cases):
        run.step()
        ended += [i for i, result in enumerate(run.results) if result.finishes and i not in ended]
    assert ended == ([5, 6, 0, 3, 4, 2, 1] if policy == "priority" else [0, 1, 2, 3, 4, 5, 6])
    check_results(run)


# ---------------------------------------------------------------------- who gives way


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_whoever_is_preempted_was_last_in_order(data: st.DataObject) -> None:
    source = random.Random(data.draw(st.integers(0, 10**6)))
    cases = [
        Case(
            source.randint(1, 39),
            20,
            source.randint(1, 40),
            arrives_at=source.randint(0, 60),
            stops=False,
            service=source.choice(["interactive", "agent", "batch"]),
            priority=source.choice([-100, 0, 0, 100]),
        )
        for _ in range(25)
    ]
    run = Run(Trace(cases, num_blocks=data.draw(st.sampled_from([20, 30])), max_num_seqs=6, budget=24, step_s=9.0))
    roster = run.scheduler._roster
    preempt = roster.preempt

    def checked(victim: Request) -> None:
        assert victim is roster.running[-1]
        preempt(victim)

    roster.preempt = checked
    check_results(run.run())


def test_an_interactive_request_takes_the_row_of_the_newest_batch_request() -> None:
    cases = [Case(8, 200, 200, stops=False, service="batch", arrives_at=i) for i in range(4)]
    cases.append(Case(8, 5, 5, stops=False, arrives_at=20))
    run = Run(Trace(cases, num_blocks=400, max_num_seqs=4, budget=64))
    while run.num_steps < 21:
        run.step()
    assert request(run, 4).status is Status.RUNNING
    assert [waits(run, i) for i in range(4)] == [False, False, False, True]
    while not run.results[4].finishes:
        run.step()
    assert run.num_steps <= 21 + 5 + 1
    run.step()
    assert not waits(run, 3), "it goes on as soon as there is a row again"
    check_results(run.run())
    assert run.scheduler.num_preemptions == 1
    assert run.scheduler.counts.recomputed <= 4, "its blocks were still cached"


def test_an_interactive_request_takes_no_more_blocks_than_it_needs() -> None:
    """The pool is full of batch requests; as few of the newest make room as hold what is lacking."""
    cases = [Case(37, 20, 3, stops=False, service="batch") for _ in range(4)]  # 10 blocks each
    cases.append(Case(60, 5, 5, stops=False, arrives_at=1))  # 15 blocks, and one for each that runs on
    run = Run(Trace(cases, num_blocks=44, max_num_seqs=8, budget=200))
    run.step()
    run.step()
    assert [waits(run, i) for i in range(5)] == [False, False, True, True, True]
    run.step()
    run.step()
    assert request(run, 4).status is Status.RUNNING
    check_results(run.run())


def test_an_interactive_request_starts_at_once_even_if_no_block_is_left() -> None:
    """One victim, and the time that its step in flight takes."""
    cases = [Case(33, 20, 7, stops=False, service="batch") for _ in range(4)]
    cases.append(Case(20, 5, 5, stops=False, arrives_at=5))
    run = Run(Trace(cases, num_blocks=40, max_num_seqs=8, budget=200))
    while run.num_steps < 5:
        run.step()
    assert run.scheduler.pool.num_available == 0
    for _ in range(3):
        run.step()
    assert request(run, 4).status is Status.RUNNING
    assert [waits(run, i) for i in range(4)] == [False, False, False, True]
    check_results(run.run())
    assert run.scheduler.num_preemptions == 1


def test_nobody_gives_way_in_vain() -> None:
    """What the batch request holds wouldn't do, since another interactive one holds the rest."""
    cases = [Case(80, 20, 20, stops=False)]
    cases += [Case(20, 15, 15, stops=False, service="batch")]
    cases += [Case(70, 5, 5, stops=False, arrives_at=3)]
    run = Run(Trace(cases, num_blocks=36, max_num_seqs=8, budget=200)).run()
    check_results(run)
    assert run.scheduler.num_preemptions == 0


@pytest.mark.parametrize("late", ["agent", "interactive"])
def test_a_request_that_has_waited_out_its_allowance_gives_way_to_nobody_new(late: ServiceClass) -> None:
    cases = [Case(8, 90, 90, stops=False, service="batch")]
    cases.append(Case(8, 5, 5, stops=False, service=late, arrives_at=70))
    run = Run(Trace(cases, num_blocks=400, max_num_seqs=1, budget=64, step_s=CLASS_ALLOWANCE_S["batch"] / 60)).run()
    check_results(run)
    assert run.scheduler.num_preemptions == 0


# ---------------------------------------------------------------------- whose tokens come first


def test_an_urgent_prompt_is_computed_before_the_rest_of_a_long_batch_prompt() -> None:
    """The long prompt takes the whole budget of every step; the short one gets all it needs in the very next, for
    itself alone."""
    cases = [Case(800, 3, 3, stops=False, service="batch"), Case(30, 5, 5, stops=False, arrives_at=5)]
    run = Run(Trace(cases, num_blocks=400, max_num_seqs=4, budget=32))
    while run.num_steps < 5:
        run.step()
    long = request(run, 0)
    before = long.num_planned
    run.step()
    assert request(run, 1).num_planned == 30
    assert long.num_planned == before
    assert gains(run) == [0, 1], "computed in the step that was planned first after it came"
    check_results(run.run())


@pytest.mark.parametrize("num_decoding", [0, 1, 5])
def test_a_short_prompt_waits_for_a_long_one_before_it_no_longer_than_the_budget_says(num_decoding: int) -> None:
    """Equally urgent ones are computed in the order of arrival: each step gives one token to each that decodes and all
    others to the long prompt, until it is done; what its last chunk leaves goes to the next."""
    budget, num_long = 32, 800
    cases = [Case(2, 99, 99, stops=False) for _ in range(num_decoding)]
    cases.append(Case(num_long, 3, 3, stops=False, arrives_at=5))
    cases += [Case(4, 3, 3, stops=False, arrives_at=6 + i) for i in range(3)]
    run = Run(Trace(cases, num_blocks=400, max_num_seqs=16, budget=budget))
    num_steps = -(-num_long // (budget - num_decoding))
    while run.num_steps < 5 + num_steps:
        assert [waits(run, num_decoding + 1 + i) for i in range(3)] == [run.num_steps > 6 + i for i in range(3)]
        got = gains(run)
        if run.num_steps > 8:
            assert got[:num_decoding] == [1] * num_decoding
    room = num_steps * (budget - num_decoding) - num_long
    assert [waits(run, num_decoding + 1 + i) for i in range(3)] == [room <= 4 * i for i in range(3)]
    check_results(run.run())


@pytest.mark.parametrize("service", ["interactive", "agent", "batch"])
def test_a_prompt_that_fills_the_context_holds_up_nobody_who_decodes(service: ServiceClass) -> None:
    """Each of them gets exactly one id in every step, whatever its class, and whatever the prompt's. Those of the class
    batch yield while there is anybody else."""
    kinds: list[ServiceClass] = ["interactive", "agent", "batch", "interactive", "batch"]
    cases = [Case(3, 250, 250, stops=False, service=kind) for kind in kinds]
    cases.append(Case(1190, 1, 1, service=service, arrives_at=5))
    run = Run(Trace(cases, num_blocks=700, max_num_seqs=6, budget=16))
    while run.num_steps < 8:
        run.step()
    for _ in range(80):
        assert gains(run) == [*(int(kind != "batch") for kind in kinds), 0]
    check_results(run.run())


# ---------------------------------------------------------------------- batches yield


def test_batch_requests_stand_still_while_anybody_else_is_there() -> None:
    """From the first step that is planned after the other has come, to the one after its last; then they go on with
    the tokens that they would have had anyway."""
    cases = [Case(8, 60, 60, stops=False, service="batch", arrives_at=i) for i in range(4)]
    cases.append(Case(8, 20, 20, stops=False, arrives_at=20))
    run = Run(Trace(cases, num_blocks=400, max_num_seqs=8, budget=64))
    while run.num_steps < 20:
        run.step()
    shares: list[list[int]] = []
    while not run.results[4].finishes:
        shares.append(gains(run))
    assert [share[4] for share in shares[2:]] == [1] * len(shares[2:]), "an id in each step"
    assert all(share[:4] == [0, 0, 0, 0] for share in shares[2:])
    gains(run)
    assert gains(run)[:4] == [1, 1, 1, 1], "they go on at once"
    check_results(run.run())
    assert run.scheduler.num_preemptions == 0


def test_no_batch_request_starts_beside_others() -> None:
    cases = [Case(8, 30, 30, stops=False), Case(8, 5, 5, stops=False, service="batch", arrives_at=3)]
    run = Run(Trace(cases, num_blocks=400, max_num_seqs=8, budget=64))
    while not run.results[0].finishes:
        run.step()
        assert not has_started(run, 1) or run.results[0].finishes
    check_results(run.run())


def test_a_batch_request_that_has_waited_out_its_allowance_yields_to_nobody_new() -> None:
    """However many others come."""
    step_s = CLASS_ALLOWANCE_S["batch"] / 40
    cases = [Case(8, 60, 60, stops=False, service="batch")]
    cases += [Case(8, 30, 30, stops=False, arrives_at=10 + 15 * i) for i in range(12)]
    run = Run(Trace(cases, num_blocks=400, max_num_seqs=8, budget=64, step_s=step_s))
    while run.num_steps < 20:
        run.step()
    assert gains(run)[0] == 0
    while run.num_steps < 75:
        run.step()
    assert gains(run)[0] == 1
    check_results(run.run())


def test_batch_requests_yield_to_nobody_who_is_held() -> None:
    """Somebody whose grammar is being compiled computes nothing; if all waited for it, the engine would stand still."""
    run = Run(Trace([Case(8, 5, 5, stops=False, service="batch")], num_blocks=400, max_num_seqs=8, budget=64))
    held = Generate(request_id=RequestId("held"), prompt_ids=(1, 2), sampling=Sampling(max_tokens=3))
    run.scheduler.add(held, is_held=True)
    while not run.results[0].finishes:
        assert run.num_steps < 20
        run.step()
    assert run.scheduler.holds(held)
    assert len(run.results[0].token_ids) == 5


def test_first_come_first_served_knows_no_classes() -> None:
    cases = [Case(8, 30, 30, stops=False, service="batch"), Case(8, 30, 30, stops=False, arrives_at=5)]
    run = Run(Trace(cases, num_blocks=400, max_num_seqs=8, budget=64, policy="fcfs"))
    while run.num_steps < 10:
        run.step()
    assert gains(run) == [1, 1]
    check_results(run.run())


def test_with_a_budget_for_fewer_than_decode_everyone_has_a_turn() -> None:
    """In N / budget steps, rounded up; and a prompt among them gets one token a turn like everyone else."""
    num_running, budget = 7, 3
    cases = [Case(2, 99, 60, stops=False) for _ in range(num_running - 1)]
    cases.append(Case(200, 9, 1))
    run = Run(Trace(cases, num_blocks=400, max_num_seqs=num_running, budget=64))
    while run.num_steps < 3:
        run.step()
    run.scheduler.limits = type(run.limits)(1600, 1000, 4, num_running, budget)
    idle = [0] * (num_running - 1)
    for _ in range(60):
        idle = [0 if got else num + 1 for got, num in zip(gains(run), idle, strict=False)]
        assert max(idle) < -(-num_running // budget)
    check_results(run.run())


def test_turns_are_given_out_only_when_there_are_too_few() -> None:
    class Fake:
        def __init__(self, rank: int, last_step_id: int) -> None:
            self.rank, self.last_step_id = rank, last_step_id

    a, b, c = Fake(0, 9), Fake(1, 7), Fake(2, 8)
    assert whose_turn([(a, 1), (b, 0), (c, 5)], 2) == [(a, 1), (c, 5)]
    assert whose_turn([(a, 1), (b, 8), (c, 5)], 2) == [(a, 1), (b, 8), (c, 5)], "one decodes; a prompt has the rest"
    assert whose_turn([(a, 1), (b, 1), (c, 5)], 2) == [(b, 1), (c, 1)]
    assert whose_turn([(a, 1), (b, 1), (c, 1)], 1) == [(b, 1)]
