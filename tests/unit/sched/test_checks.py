"""The scheduler's checker sees what it is for: each planted contradiction is found."""

from collections.abc import Callable
from dataclasses import fields

import pytest

from freehold.kv.blocks import BlockPool, BlockTable
from freehold.kv.check import InvariantError
from freehold.protocol import Generate, RequestId, Sampling
from freehold.sched.admission import Limits
from freehold.sched.check import check_idle, check_scheduler
from freehold.sched.counts import TokenCounts
from freehold.sched.plan import RowOutcome
from freehold.sched.request import Status
from freehold.sched.scheduler import Scheduler

LIMITS = Limits(max_model_len=64, vocab_size=100, block_size=4, max_num_seqs=2, max_num_batched_tokens=16)


def busy() -> Scheduler:
    """Two requests run with a step in flight, two wait."""
    scheduler = Scheduler(BlockPool(16), LIMITS, clock=lambda: 0.0)
    for first_id, name in enumerate("abcd"):
        sampling = Sampling(max_tokens=8)
        scheduler.add(Generate(request_id=RequestId(name), prompt_ids=(first_id, 2, 3, 4, 5), sampling=sampling))
    scheduler.plan()
    check_scheduler(scheduler)
    return scheduler


def lose_a_block(scheduler: Scheduler) -> None:
    scheduler.running[0].table = BlockTable()


def share_a_block(scheduler: Scheduler) -> None:
    scheduler.running[0].table.extend(list(scheduler.running[1].table)[:1])


def forget_a_row(scheduler: Scheduler) -> None:
    scheduler.running[0].num_in_flight -= 1


def forget_who_feeds(scheduler: Scheduler) -> None:
    scheduler.running[0].fed_by = None


def compute_too_far(scheduler: Scheduler) -> None:
    scheduler.running[0].num_planned = 9


def hold_too_much(scheduler: Scheduler) -> None:
    scheduler.running[0].table.extend(scheduler.pool.allocate(3))


def hold_while_waiting(scheduler: Scheduler) -> None:
    scheduler.waiting[0].table.extend(scheduler.pool.allocate(1))


def lose_a_request(scheduler: Scheduler) -> None:
    scheduler.waiting.pop()


def queue_twice(scheduler: Scheduler) -> None:
    scheduler.waiting.append(scheduler.waiting[-1])


def swap(scheduler: Scheduler) -> None:
    scheduler.waiting.reverse()


def misname_a_state(scheduler: Scheduler) -> None:
    scheduler.waiting[0].status = Status.RUNNING


@pytest.mark.parametrize(
    "plant",
    [
        lose_a_block,
        share_a_block,
        forget_a_row,
        forget_who_feeds,
        compute_too_far,
        hold_too_much,
        hold_while_waiting,
        lose_a_request,
        queue_twice,
        swap,
        misname_a_state,
    ],
)
def test_each_contradiction_is_found(plant: Callable[[Scheduler], None]) -> None:
    scheduler = busy()
    plant(scheduler)
    with pytest.raises(InvariantError):
        check_scheduler(scheduler)


@pytest.mark.parametrize("name", [field.name for field in fields(TokenCounts)])
@pytest.mark.parametrize("error", [1, -1])
def test_a_token_that_was_lost_or_counted_twice_is_found(name: str, error: int) -> None:
    scheduler = busy()
    setattr(scheduler.counts, name, getattr(scheduler.counts, name) + error)
    with pytest.raises(InvariantError, match="ledger of tokens"):
        check_scheduler(scheduler)


def test_idle_means_nothing_is_left() -> None:
    scheduler = busy()
    with pytest.raises(InvariantError, match="'live': 4"):
        check_idle(scheduler)
    scheduler = Scheduler(BlockPool(16), LIMITS, clock=lambda: 0.0)
    check_idle(scheduler)
    scheduler.pool.allocate(1)
    with pytest.raises(InvariantError, match="'blocks': 1"):
        check_idle(scheduler)


def test_a_pool_must_hold_the_longest_request() -> None:
    with pytest.raises(ValueError, match="64 tokens doesn't fit in 15 blocks of 4"):
        Scheduler(BlockPool(15), LIMITS, clock=lambda: 0.0)


def test_blocks_of_an_ended_request_return_after_its_last_row() -> None:
    """The first step ends the request; the second, already planned, still writes to its blocks."""
    scheduler = Scheduler(BlockPool(16), LIMITS, clock=lambda: 0.0)
    sampling = Sampling(max_tokens=8, stop_ids=frozenset({7}))
    scheduler.add(Generate(request_id=RequestId("a"), prompt_ids=(1, 2, 3, 4, 5), sampling=sampling))
    first, second = scheduler.plan(), scheduler.plan()
    assert second.rows[0].fed_by is not None
    assert second.rows[0].token_ids == []
    tokens, finish = scheduler.apply(first, [RowOutcome((7,))])
    assert tokens.token_ids == (7,)
    assert finish.reason == "stop"
    assert scheduler.pool.num_held == 2
    assert scheduler.plan().rows == []
    assert scheduler.apply(second, [RowOutcome((9,))]) == []
    check_idle(scheduler)
