"""What the core counts of its own work, and snapshots of it and of its scheduler."""

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Literal

from freehold.observe.profile import IDLE
from freehold.observe.state import (
    ITERATION_TOKENS,
    MAX_BEGINNINGS,
    Beginning,
    EngineState,
    KVUse,
    StepSeconds,
    Waiting,
)
from freehold.sched.request import Request, Status
from freehold.sched.scheduler import Scheduler
from freehold.sched.sharing import is_led

SNAPSHOT_S = 0.25
"""No snapshot is much older, unless a step takes longer."""

MAX_NAMESPACES = 16
"""A snapshot tells of the largest ones only."""

Part = Literal["plan", "run", "apply", "idle"]

_PARTS: dict[str, Part] = {
    "inbox": "plan", "plan": "plan", "submit": "plan", "collect": "run", "apply": "apply", "publish": "apply",
    "masks": "apply", IDLE: "idle",
}  # fmt: skip


class LoopCounts:
    """Steps, and how long the loop was where. Written by the core's thread alone.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds: dict[Part, float] = {"plan": 0.0, "run": 0.0, "apply": 0.0, "idle": 0.0}
        self._stay: tuple[Part, float] = ("idle", clock())
        self.num_steps = 0
        self.num_tokens = 0
        self.steps_by_tokens = [0] * (len(ITERATION_TOKENS) + 1)

    def enter(self, place: str) -> None:
        """The loop goes on to another `LoopPlace`, or goes to sleep (`IDLE`)."""
        now_s = self._clock()
        part, since_s = self._stay
        self._seconds[part] += now_s - since_s
        self._stay = _PARTS[place], now_s

    def submitted(self, num_tokens: int, num_steps: int) -> None:
        """So many steps more, equal ones, are on their way; all steps have had so many tokens now."""
        self.num_steps += num_steps
        num_each = (num_tokens - self.num_tokens) // num_steps
        self.steps_by_tokens[bisect_left(ITERATION_TOKENS, num_each)] += num_steps
        self.num_tokens = num_tokens

    def seconds(self, now_s: float) -> StepSeconds:
        """Of all parts, up to now."""
        part, since_s = self._stay
        seconds = self._seconds | {part: self._seconds[part] + now_s - since_s}
        return StepSeconds(seconds["plan"], seconds["run"], seconds["apply"], seconds["idle"])


class Snapshots:
    """Snapshots of a scheduler and its loop, for all threads.

    While the loop rests, as it does most of the time, nothing changes and whoever asks takes one. While it works, the
    newest is given; now and then the loop takes one itself, in case it is always found working.
    """

    def __init__(self, scheduler: Scheduler, counts: LoopCounts, clock: Callable[[], float] = time.monotonic) -> None:
        self._scheduler = scheduler
        self._counts = counts
        self._clock = clock
        self._working = threading.Lock()  # the loop holds it but while it rests
        self._newest = self._take()

    def newest(self) -> EngineState:
        """How it is, or was a moment ago."""
        if self._working.acquire(blocking=False):
            try:
                self._newest = self._take()
            finally:
                self._working.release()
        return self._newest

    def begin(self) -> None:
        """The loop works from here on."""
        self._working.acquire()

    def end(self) -> None:
        """The loop has ended."""
        self._working.release()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """The loop waits, and lets others look at what it works on."""
        self._working.release()
        try:
            yield
        finally:
            self._working.acquire()

    def take_if_due(self) -> None:
        """Take one if the newest is old. The loop does, while it works."""
        if self._clock() - self._newest.at_s >= SNAPSHOT_S:
            self._newest = self._take()

    def _take(self) -> EngineState:
        return snapshot(self._scheduler, self._counts, self._clock())


def snapshot(scheduler: Scheduler, counts: LoopCounts, now_s: float) -> EngineState:
    """The scheduler and the loop as they are. Nothing may change them meanwhile."""
    memory, tokens, drafts = scheduler.memory, scheduler.counts, scheduler.drafts
    return EngineState(
        at_s=now_s,
        num_running=len(scheduler.running),
        num_prefilling=sum(request.num_computed < request.num_prompt for request in scheduler.running),
        waiting=_waiting(scheduler),
        kv=KVUse(
            num_blocks=memory.pool.num_blocks,
            held=memory.pool.num_held,
            cached=memory.pool.num_evictable,
            pinned=memory.tree.pins.num_blocks,
            public=memory.num_public,
            by_namespace=tuple(memory.largest_namespaces(MAX_NAMESPACES)),
        ),
        prefix_queries_total=memory.counts.num_queried,
        prefix_hits_total=memory.counts.num_hit,
        preemptions_total=scheduler.num_preemptions,
        computed_total=tokens.computed,
        recomputed_total=tokens.recomputed,
        sampled_total=tokens.sampled,
        steps_total=counts.num_steps,
        iteration_tokens=tuple(counts.steps_by_tokens),
        iteration_tokens_sum=counts.num_tokens,
        step_seconds=counts.seconds(now_s),
        drafts_total=drafts.rows,
        draft_tokens_total=drafts.guessed,
        accepted_tokens_total=drafts.accepted,
        accepted_by_place=tuple(drafts.accepted_by_place),
        is_thrashing=scheduler.alarm is not None and scheduler.alarm.is_thrashing,
        beginnings=tuple(islice(_beginnings(scheduler, now_s), MAX_BEGINNINGS)),
    )


def _beginnings(scheduler: Scheduler, now_s: float) -> Iterator[Beginning]:
    for request in chain(scheduler.running, scheduler.waiting):
        if request.num_output:
            continue
        is_running = request.status is Status.RUNNING
        yield Beginning(
            request.generate.request_id,
            request.started_s if is_running else None,
            min(request.num_computed, request.num_prompt),
            request.is_held,
            now_s - request.arrival_s if request.is_held else request.held_s,
        )


def _waiting(scheduler: Scheduler) -> Waiting:
    """The first in order waits for what kept it from starting, and so do all after it, if nobody could pass it."""
    reasons = Counter(_reason(request, scheduler.hindrance or "order") for request in scheduler.waiting)
    return Waiting(**reasons)


def _reason(request: Request, hindrance: str) -> str:
    if request.is_held:
        return "grammar"
    return "leader" if is_led(request) else hindrance
