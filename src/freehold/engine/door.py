"""The engine's door: who is let in while others wait. `freehold.engine.handle` asks it, with its lock held."""

import time
from collections.abc import Iterable, Sequence

from freehold.config import EngineConfig
from freehold.errors import EngineError
from freehold.protocol import EngineInfo, Event, Finish, Generate, RequestId
from freehold.sched.backlog import Backlog
from freehold.sched.policy import POLICIES, Queue, QueueLimits


class Door:
    """Counts who is inside, and asks the policy who may enter.

    A place can be kept for a request before it is known (`keep`), for one that is known before it is submitted
    (`let_in`), and after its end until whoever asked has left (`leave`), who may still be busy with the answer. All
    count as inside, and requests that belong together get in together.
    """

    def __init__(self, config: EngineConfig, info: EngineInfo) -> None:
        self.limits = QueueLimits(config.max_num_queued_reqs, config.max_num_queued_tokens)
        self._policy = POLICIES[config.scheduling_policy](self.limits)
        self._num_rows = info.max_num_seqs
        self._backlog = Backlog(
            num_rows=info.max_num_seqs, kv_tokens=info.kv_tokens, policy=self._policy, clock=time.monotonic
        )
        self._num_kept = 0
        self._let_in: set[RequestId] = set()  # and not submitted yet
        self._placed: set[RequestId] = set()  # let in, not ended, and whoever asked has not left

    @property
    def num_inside(self) -> int:
        """Requests that are inside, and places kept."""
        return len(self._backlog) + self._num_kept

    def keep(self, num_places: int) -> None:
        """Keep places.

        Raises:
            EngineError: ``queue_full``.
        """
        self._check((), num_places)
        self._num_kept += num_places

    def give_up(self, num_places: int) -> None:
        """Places that were kept aren't needed."""
        self._num_kept -= num_places

    def let_in(self, generates: Sequence[Generate]) -> None:
        """Let requests in that will be submitted: all or none.

        Raises:
            EngineError: ``queue_full``.
        """
        self._check(generates, len(generates))
        for generate in generates:
            self._backlog.enter(generate)
            self._let_in.add(generate.request_id)
            self._placed.add(generate.request_id)

    def submit(self, generate: Generate) -> None:
        """A request comes in, with or without having been let in before.

        Raises:
            EngineError: ``queue_full``.
        """
        if generate.request_id in self._let_in:
            self._let_in.discard(generate.request_id)
        else:
            self._check((generate,), 1)
            self._backlog.enter(generate)

    def leave(self, request_ids: Iterable[RequestId]) -> None:
        """Whoever let these requests in has no more to do with them, whether they were submitted, run or have ended."""
        for request_id in request_ids:
            if request_id in self._let_in:
                self._let_in.discard(request_id)
                self._backlog.forget(request_id)
            elif request_id not in self._placed:
                self._num_kept -= 1
            self._placed.discard(request_id)

    def turn_back(self, generate: Generate) -> None:
        """One that came in can't be passed on."""
        self._backlog.forget(generate.request_id)

    def take(self, event: Event) -> None:
        """An event of somebody inside."""
        self._backlog.take(event)
        if isinstance(event, Finish) and event.request_id in self._placed:
            self._placed.discard(event.request_id)
            self._num_kept += 1

    def _check(self, generates: Sequence[Generate], num_places: int) -> None:
        num_waiting = max(0, self.num_inside - self._num_rows)
        families: set[str] = set()
        num_tokens = 0
        for generate in generates:
            num_tokens += 1 if generate.family in families else self._backlog.num_tokens(generate)
            families |= {generate.family} - {""}
        asking = generates[:1]
        queue = Queue(
            num_reqs=num_waiting,
            num_tokens=self._backlog.num_waiting_tokens,
            num_new_reqs=max(0, self.num_inside + num_places - self._num_rows) - num_waiting,
            num_new_tokens=num_tokens,
            wait_s=lambda: self._backlog.wait_s(*asking),
        )
        reason = self._policy.refusal(generates, queue)
        if reason is not None:
            wait_s = queue.wait_s()
            hint = f"; try again in about {wait_s:.0f} s" if wait_s is not None and wait_s >= 1 else ""
            raise EngineError(f"{reason}{hint}", code="queue_full", retry_after_s=wait_s)
