"""Steps that answers wait for last no longer than they should, and prompts get on all the same."""

import pytest

from freehold.kv.blocks import BlockPool
from freehold.protocol import Generate, RequestId, Sampling, ServiceClass
from freehold.sched.admission import Limits
from freehold.sched.pace import FEWEST_PROMPT_TOKENS, StepPace
from freehold.sched.plan import RowOutcome, StepPlan
from freehold.sched.scheduler import Scheduler

BUDGET = 512


@pytest.mark.parametrize("num_decoding", [0, 1, 64])
def test_nothing_is_known_before_the_first_step(num_decoding: int) -> None:
    assert StepPace(0.1).most_tokens(num_decoding, BUDGET) == BUDGET


def test_only_answers_that_grow_bound_a_step() -> None:
    pace = StepPace(0.1)
    pace.observe(400, 0.4)
    assert pace.most_tokens(0, BUDGET) == BUDGET
    assert pace.most_tokens(1, BUDGET) == 100


def test_a_budget_below_the_bound_stays() -> None:
    pace = StepPace(10.0)
    pace.observe(400, 0.4)
    assert pace.most_tokens(3, BUDGET) == BUDGET


def test_slow_steps_leave_room_for_every_answer_and_some_of_a_prompt() -> None:
    pace = StepPace(0.1)
    pace.observe(32, 32.0)
    assert pace.most_tokens(50, BUDGET) == 50 + FEWEST_PROMPT_TOKENS
    assert pace.most_tokens(50, 20) == 20


def test_small_steps_teach_nothing_and_later_ones_count_more() -> None:
    pace = StepPace(0.1)
    pace.observe(1, 0.01)
    assert pace.most_tokens(1, BUDGET) == BUDGET
    pace.observe(100, 0.1)
    for _ in range(30):
        pace.observe(100, 0.05)
    assert pace.most_tokens(1, BUDGET) == pytest.approx(200, abs=1)


def run(scheduler: Scheduler, pace: StepPace, step_s: float) -> StepPlan:
    plan = scheduler.plan()
    pace.observe(plan.num_inputs, step_s)
    scheduler.apply(plan, [RowOutcome([7] * row.num_sampled) for row in plan.rows])
    return plan


def paced(pace: StepPace) -> Scheduler:
    limits = Limits(max_model_len=4000, vocab_size=100, block_size=16, max_num_seqs=4, max_num_batched_tokens=BUDGET)
    return Scheduler(BlockPool(600), limits, clock=lambda: 0.0, pace=pace, prefix_caching=False)


def add(
    scheduler: Scheduler, name: str, num_prompt: int, max_tokens: int, service: ServiceClass = "interactive"
) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=max_tokens)
    prompt_ids = (5,) * num_prompt
    scheduler.add(Generate(request_id=RequestId(name), prompt_ids=prompt_ids, sampling=sampling, service=service))


def test_a_long_prompt_is_cut_small_beside_an_answer_and_large_alone() -> None:
    pace = StepPace(0.1)
    scheduler = paced(pace)
    add(scheduler, "answer", 100, 6)
    assert run(scheduler, pace, 0.1).num_inputs == 100
    add(scheduler, "prompt", 2000, 1)
    sizes = [run(scheduler, pace, 0.1).num_inputs for _ in range(4)]
    assert sizes == [100] * 4  # the answer's one and 99 of the prompt
    run(scheduler, pace, 0.1)
    assert run(scheduler, pace, 0.5).num_inputs == BUDGET  # the answer has ended


@pytest.mark.parametrize("service", ["interactive", "agent", "batch"])
@pytest.mark.parametrize("num_before", [0, 1])
def test_a_prompt_alone_is_computed_in_steps_as_large_as_they_may_be(service: ServiceClass, num_before: int) -> None:
    """Whoever asks it, and also right after an answer that has ended."""
    pace = StepPace(0.1)
    scheduler = paced(pace)
    for number in range(num_before):
        add(scheduler, f"before {number}", 100, 6, service)
        while scheduler.has_work:
            run(scheduler, pace, 0.1)
    pace.observe(100, 0.1)
    add(scheduler, "prompt", 1200, 1, service)
    assert [run(scheduler, pace, 0.5).num_inputs for _ in range(3)] == [BUDGET, BUDGET, 1200 - 2 * BUDGET]


def test_answers_that_nobody_reads_as_they_grow_bound_no_step() -> None:
    pace = StepPace(0.1)
    scheduler = paced(pace)
    add(scheduler, "answer", 100, 50, "batch")
    run(scheduler, pace, 0.1)
    add(scheduler, "prompt", 2000, 1, "batch")
    assert run(scheduler, pace, 0.1).num_inputs == BUDGET


@pytest.mark.parametrize("reader", ["interactive", "agent"])
def test_once_somebody_has_come_a_batch_keeps_its_steps_short_for_the_next(reader: ServiceClass) -> None:
    pace = StepPace(0.1)
    scheduler = paced(pace)
    add(scheduler, "reader", 100, 2, reader)
    while scheduler.has_work:
        run(scheduler, pace, 0.1)
    add(scheduler, "prompt", 2000, 1, "batch")
    assert run(scheduler, pace, 0.1).num_inputs == 100
