"""A plan that stands for a round of steps: how far it goes, and what its requests get of it."""

from typing import Any

import pytest

from freehold.backends.base import FedBy, StepId
from freehold.kv.blocks import BlockPool
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling, Tokens
from freehold.sched.admission import Limits
from freehold.sched.check import check_idle, check_scheduler
from freehold.sched.plan import RowOutcome, StepPlan
from freehold.sched.scheduler import Scheduler

BLOCK_SIZE = 16
STOP_ID = 2


class Site:
    """A scheduler whose requests' prompts are computed.

    Args:
        sampling: of each request.
    """

    def __init__(self, *sampling: dict[str, Any], num_blocks: int = 100, num_prompt: int = 5) -> None:
        limits = Limits(
            max_model_len=num_blocks * BLOCK_SIZE,
            vocab_size=100,
            block_size=BLOCK_SIZE,
            max_num_seqs=8,
            max_num_batched_tokens=64,
        )
        self.scheduler = Scheduler(BlockPool(num_blocks), limits, clock=lambda: 0.0)
        for number, each in enumerate(sampling):
            prompt_ids = tuple(number + position for position in range(10, 10 + num_prompt))
            sampled = Sampling(temperature=0.0, **{"max_tokens": 1000} | each)
            self.scheduler.add(
                Generate(request_id=RequestId(str(number)), prompt_ids=prompt_ids, sampling=sampled, digests=True)
            )
        plan = self.scheduler.plan()
        self.apply(plan, *([7] for _ in plan.rows))

    def round(self, num_steps: int) -> StepPlan:
        return self.scheduler.lengthen(self.scheduler.plan(), num_steps)

    def apply(self, plan: StepPlan, *ids: list[int], finite: bool = True) -> list[Event]:
        events = self.scheduler.apply(plan, [RowOutcome(each, each, finite) for each in ids])
        check_scheduler(self.scheduler)
        return events


def test_the_next_plan_goes_on_from_the_last_step_of_a_round() -> None:
    site = Site({}, {})
    first = site.round(4)
    second = site.round(3)
    assert (first.num_steps, second.num_steps) == (4, 3)
    assert second.step_ids == [first.step_id + 4, first.step_id + 5, first.step_id + 6]
    assert [row.fed_by for row in second.rows] == [FedBy(StepId(first.step_id + 3), number) for number in range(2)]
    assert [row.start_pos for row in second.rows] == [row.start_pos + 4 for row in first.rows]
    site.apply(first, [20, 21, 22, 23], [30, 31, 32, 33])
    site.apply(second, [24, 25, 26], [34, 35, 36])
    assert site.scheduler.running[0].ids[5:] == [7, *range(20, 27)]
    assert site.scheduler.running[1].ids[5:] == [7, *range(30, 37)]


@pytest.mark.parametrize("num_left", range(1, 6))
def test_a_round_ends_with_the_first_answer_that_is_complete(num_left: int) -> None:
    site = Site({}, {"max_tokens": 1 + num_left})
    plan = site.round(4)
    assert plan.num_steps == min(4, num_left)
    events = site.apply(plan, [8] * plan.num_steps, [9] * plan.num_steps)
    ends = [event.reason for event in events if isinstance(event, Finish)]
    assert ends == (["length"] if num_left <= 4 else [])


@pytest.mark.parametrize("num_prompt", range(BLOCK_SIZE - 5, BLOCK_SIZE + 1))
def test_a_round_has_blocks_for_all_its_positions(num_prompt: int) -> None:
    site = Site({}, num_prompt=num_prompt)
    (row,) = site.round(4).rows
    assert row.num_blocks * BLOCK_SIZE >= row.start_pos + 4
    assert list(row.block_buffer[: row.num_blocks]) == list(site.scheduler.running[0].table)


def test_where_blocks_are_too_few_there_is_a_step_and_nobody_is_preempted() -> None:
    site = Site({}, {}, num_blocks=3, num_prompt=BLOCK_SIZE - 2)
    plan = site.round(4)
    assert plan.num_steps == 1
    assert len(plan.rows) == 2
    assert site.scheduler.num_preemptions == 0


def test_a_request_is_told_once_of_all_that_a_round_brought() -> None:
    site = Site({}, {"stop_ids": frozenset({STOP_ID})})
    events = site.apply(site.round(4), [8, 8, 8, 8], [9, STOP_ID, 11, 12])
    told = [(event.request_id, event.token_ids, event.digests) for event in events if isinstance(event, Tokens)]
    assert told == [("0", (8, 8, 8, 8), (8, 8, 8, 8)), ("1", (9, STOP_ID), (9, STOP_ID))]
    assert site.scheduler.counts.dropped == 2, "what was computed past the end"


@pytest.mark.parametrize("num_before", range(4))
def test_logits_that_are_not_finite_end_a_request_after_what_came_before(num_before: int) -> None:
    site = Site({})
    plan = site.round(4)
    events = site.apply(plan, [8] * num_before, finite=False)
    assert [event.token_ids for event in events if isinstance(event, Tokens)] == [(8,) * num_before] * (num_before > 0)
    finish = events[-1]
    assert isinstance(finish, Finish)
    assert (finish.code, finish.num_output_tokens) == ("numeric_error", 1 + num_before)
    assert f"after position {plan.rows[0].start_pos + num_before} " in str(finish.message)
    check_idle(site.scheduler)


@pytest.mark.parametrize("num_before", range(4))
def test_a_step_that_fails_in_a_round_ends_its_requests_after_what_came_before(num_before: int) -> None:
    site = Site({}, {})
    plan, after = site.round(4), site.round(2)
    before = [RowOutcome([8] * num_before, [8] * num_before)] * 2 if num_before else []
    events = site.scheduler.fail_step(plan, code="step_failed", message="why", before=before)
    ends = [event for event in events if isinstance(event, Finish)]
    assert [(end.code, end.num_output_tokens) for end in ends] == [("step_failed", 1 + num_before)] * 2
    assert site.apply(after, [9, 9], [9, 9]) == []
    check_idle(site.scheduler)
