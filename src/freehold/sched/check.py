"""Invariants of the scheduler, block pool included."""

from collections import Counter

from freehold.kv.check import InvariantError, check_pool
from freehold.sched.request import Status
from freehold.sched.scheduler import Scheduler


def check_scheduler(scheduler: Scheduler) -> None:
    """Compare all accounts. Costs about as much as planning a step; tests do it after every one.

    Raises:
        InvariantError: they contradict each other.
    """
    waiting, running = scheduler.waiting, scheduler.running
    for queue, status in ((waiting, Status.WAITING), (running, Status.RUNNING)):
        _expect(all(request.status is status for request in queue), f"a request among the {status} isn't")
        _expect(sorted(queue, key=lambda request: request.rank) == queue, f"the {status} are out of order")
    queued = Counter(id(request) for request in waiting + running)
    _expect(queued == Counter(id(r) for r in scheduler.live.values()), "who has not ended must wait or run, once")

    num_deadlines = sum(request.generate.deadline_s is not None for request in scheduler.live.values())
    _expect(scheduler.num_deadlines == num_deadlines, "a deadline of nobody's is kept, or somebody's isn't")

    in_flight = Counter(id(request) for step in scheduler.in_flight.values() for request in step)
    everyone = {id(request): request for step in scheduler.in_flight.values() for request in step}
    everyone |= {id(request): request for request in scheduler.live.values()}
    block_size = scheduler.limits.block_size
    for request in everyone.values():
        name, num_blocks = request.generate.request_id, len(request.table)
        _expect(request.num_in_flight == in_flight[id(request)], f"{name}: rows in flight are miscounted")
        _expect((request.fed_by is not None) == (request.num_pending > 0), f"{name}: fed by nobody, or needlessly")
        _expect(request.num_planned <= num_blocks * block_size, f"{name}: computes past its blocks")
        _expect(num_blocks <= -(-request.max_total // block_size), f"{name}: holds blocks that it never needs")
        if request.status is not Status.RUNNING:
            _expect(request.num_in_flight > 0 or num_blocks == 0, f"{name}: holds blocks and doesn't run")
        if request.status is Status.RUNNING:
            _expect(request.num_computed <= request.num_planned, f"{name}: more is computed than was planned")
        _expect(request.num_kept <= request.num_computed // block_size, f"{name}: blocks are reused before their time")
    scheduler.counts.check(scheduler.live.values())
    memory = scheduler.memory
    _expect(memory.prefix_caching or memory.num_families > 0 or not len(memory.tree), "something is cached for nobody")
    check_pool(scheduler.pool, [request.table for request in everyone.values()], scheduler.memory.tree)


def check_idle(scheduler: Scheduler) -> None:
    """Nothing may be left when there is no work, and what the prefix tree keeps must be what the pool counts. Cheap
    enough for every time the engine goes to sleep.

    Raises:
        InvariantError: a request, a step or a block was left behind.
    """
    left = {
        "live": len(scheduler.live),
        "waiting": len(scheduler.waiting),
        "running": len(scheduler.running),
        "steps in flight": len(scheduler.in_flight),
        "tokens in flight": scheduler.counts.in_flight,
        "deadlines": scheduler.num_deadlines,
        "families": scheduler.memory.num_families,
        "blocks": scheduler.pool.num_held,
    }
    _expect(not any(left.values()), f"left behind by an idle scheduler: {left}")
    scheduler.counts.check(())
    num_cached, pool = len(scheduler.memory.tree), scheduler.pool
    _expect(scheduler.memory.prefix_caching or not num_cached, f"{num_cached} blocks are cached for nobody")
    _expect(
        num_cached == pool.num_evictable and num_cached + pool.num_free == pool.num_blocks,
        f"of {pool.num_blocks} blocks {pool.num_free} are free, {pool.num_evictable} evictable, {num_cached} cached",
    )


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantError(message)
