"""Who waits and who runs, and who gives way to whom when rows or blocks run out."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from operator import attrgetter

from freehold.backends.base import StepId
from freehold.sched.memory import KVMemory
from freehold.sched.policy import Policy, Rank
from freehold.sched.request import Request, Status

_rank = attrgetter("rank")


class Roster:
    """The requests that have not ended, in two queues.

    Args:
        max_running: rows of one step.

    Attributes, for reading only:
        waiting: new and preempted requests, in the policy's order.
        running: requests that hold blocks and may get a row in every step, in the same order.
        in_flight: by submitted step that is not applied, the requests of its rows.
        num_preemptions: since start-up.
        just_preempted: since a step was last planned.
        is_read: a request that isn't of the class batch has come since start-up: somebody may wait for a step.
    """

    def __init__(self, memory: KVMemory, policy: Policy, max_running: int) -> None:
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.in_flight: dict[StepId, list[Request]] = {}
        self.num_preemptions = 0
        self.just_preempted: set[Request] = set()
        self.is_read = False
        self._memory = memory
        self._policy = policy
        self._max_running = max_running
        self._urgent: Rank | None = None

    # ------------------------------------------------------------------ come and go

    def enter(self, request: Request) -> None:
        """A new request waits."""
        self.is_read = self.is_read or request.generate.service != "batch"
        self._memory.enter(request)
        insort(self.waiting, request, key=_rank)

    def start(self, request: Request) -> None:
        """A waiting request has got its blocks and runs from here on."""
        _take_out(self.waiting, request)
        request.status = Status.RUNNING
        insort(self.running, request, key=_rank)

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks; it starts over later with the ids it has, and computes what isn't cached
        any more again."""
        _take_out(self.running, request)
        request.status = Status.WAITING
        request.num_planned = 0
        insort(self.waiting, request, key=_rank)
        self.release_if_left(request)
        self.just_preempted.add(request)
        self.num_preemptions += 1
        request.num_preemptions += 1

    def leave(self, request: Request) -> None:
        """A request has ended."""
        _take_out(self.running if request.status is Status.RUNNING else self.waiting, request)
        request.status = Status.ENDED
        self.just_preempted.discard(request)

    def release_if_left(self, request: Request) -> None:
        """Return the blocks of a request that no longer runs once no step in flight writes to them."""
        if request.num_in_flight == 0 and request.status is Status.ENDED:
            self._memory.leave(request)
        elif request.num_in_flight == 0 and request.status is Status.WAITING:
            self._memory.release(request)

    # ------------------------------------------------------------------ rows

    @property
    def is_full(self) -> bool:
        """Every row of a step is taken."""
        return len(self.running) >= self._max_running

    def may_have_row(self, request: Request) -> bool:
        """Whether a step has room for a row of a waiting request, or one of somebody far less urgent to give up."""
        return not self.is_full or self.may_displace(request)

    def may_displace(self, request: Request) -> bool:
        """Whether somebody runs who is far less urgent than a waiting request."""
        return bool(self.running) and self._policy.displaces(request.rank, self.running[-1].rank)

    def look_for_urgent(self) -> None:
        """Note the first request, running or waiting, that isn't of the class batch. For those that are held nobody
        needs to be quick."""
        firsts = (
            next((each.rank for each in queue if each.generate.service != "batch" and not each.is_held), None)
            for queue in (self.running, self.waiting)
        )
        self._urgent = min((rank for rank in firsts if rank is not None), default=None)

    @property
    def has_batch(self) -> bool:
        """Whether the last in order, running or waiting, is of the class batch: whoever comes next waits no longer for
        its step than for others' answers."""
        return any(request.generate.service == "batch" for request in (*self.running[-1:], *self.waiting[-1:]))

    def yields(self, request: Request) -> bool:
        """Whether a request of the class batch lets the next step go to others, so that theirs is as short as without
        it: while there is somebody far more urgent than it is."""
        if self._urgent is None or request.generate.service != "batch":
            return False
        return self._policy.displaces(self._urgent, request.rank)

    # ------------------------------------------------------------------ blocks

    def reserve(self, request: Request, num_positions: int) -> bool:
        """Give a running request blocks for its first `num_positions`, preempting those behind it if need be. False if
        it must wait a step: for blocks that steps in flight still use, or because only requests before it hold any.

        The first in order can take from all others, so it always gets on, and so in turn does everyone.
        """
        pool = self._memory.pool
        missing = self._memory.num_blocks(num_positions) - len(request.table)
        if missing <= 0:
            return True
        while missing > pool.num_available + self._num_returning() and self.running[-1] is not request:
            self.preempt(self.running[-1])
        if missing > pool.num_available:
            return False
        self._memory.grow(request, missing)
        return True

    def displace(self, request: Request) -> bool:
        """Preempt running requests for the blocks that a far more urgent one lacks to start: as few as will do, or none
        if all of them wouldn't, or if enough are on their way back. Whether that was done."""
        victims: list[Request] = []
        if request.num_needed + len(self.running) <= self._memory.pool.num_available + self._num_returning():
            return False
        for victim in reversed(self.running):
            if not self._policy.displaces(request.rank, victim.rank):
                return False
            victims.append(victim)
            num_spare = len(self.running) - len(victims)
            if request.num_needed + num_spare <= self._memory.pool.num_available + self._num_returning(victims):
                break
        else:
            return False
        for victim in victims:
            self.preempt(victim)
        return True

    def _num_returning(self, victims: Sequence[Request] = ()) -> int:
        """Blocks that return as soon as the steps in flight are applied, if these were preempted too."""
        leaving = {id(r): r for step in self.in_flight.values() for r in step if r.status is not Status.RUNNING}
        leaving |= {id(r): r for r in victims}
        return self._memory.num_returning(leaving.values())


def _take_out(queue: list[Request], request: Request) -> None:
    del queue[bisect_left(queue, request.rank, key=_rank)]
