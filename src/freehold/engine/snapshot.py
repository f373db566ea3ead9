"""What the core counts of its own work, and the snapshots that it takes of it and of its scheduler."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from freehold.observe.profile import IDLE
from freehold.observe.state import ITERATION_TOKENS, EngineState, KVUse, StepSeconds, Waiting
from freehold.sched.request import Request
from freehold.sched.scheduler import Scheduler
from freehold.sched.sharing import is_led

SNAPSHOT_S = 0.25
"""While steps run, a snapshot is taken about that often: after the first step that ends later than this."""

MAX_NAMESPACES = 16
"""A snapshot tells of the largest ones only."""

Part = Literal["plan", "run", "apply", "idle"]

_PARTS: dict[str, Part] = {
    "inbox": "plan", "plan": "plan", "submit": "plan", "collect": "run", "apply": "apply", "publish": "apply",
    "masks": "apply", IDLE: "idle",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Stay:
    """Where the loop is, and since when."""

    part: Part
    since_s: float


class LoopCounts:
    """Steps, and how long the loop was where. Written by the core's thread alone.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds: dict[Part, float] = {"plan": 0.0, "run": 0.0, "apply": 0.0, "idle": 0.0}
        self.stay = _Stay("idle", clock())
        self.num_steps = 0
        self.num_tokens = 0
        self.steps_by_tokens = [0] * (len(ITERATION_TOKENS) + 1)

    def enter(self, place: str) -> None:
        """The loop goes on to another `LoopPlace`, or goes to sleep (`IDLE`)."""
        now_s, stay = self._clock(), self.stay
        self._seconds[stay.part] += now_s - stay.since_s
        self.stay = _Stay(_PARTS[place], now_s)

    def submitted(self, num_tokens: int) -> None:
        """Another step is on its way; all steps have had so many tokens now."""
        self.num_steps += 1
        self.steps_by_tokens[bisect_left(ITERATION_TOKENS, num_tokens - self.num_tokens)] += 1
        self.num_tokens = num_tokens

    def seconds(self, now_s: float) -> StepSeconds:
        """Of all parts, up to now."""
        seconds = self._seconds | {self.stay.part: self._seconds[self.stay.part] + now_s - self.stay.since_s}
        return StepSeconds(seconds["plan"], seconds["run"], seconds["apply"], seconds["idle"])


class Snapshots:
    """Takes snapshots in the core's thread, between steps, and offers the newest to all threads."""

    def __init__(self, scheduler: Scheduler, counts: LoopCounts, clock: Callable[[], float] = time.monotonic) -> None:
        self._scheduler = scheduler
        self._counts = counts
        self._clock = clock
        self._newest = snapshot(scheduler, counts, clock())

    def take(self) -> None:
        """Take one now."""
        self._newest = snapshot(self._scheduler, self._counts, self._clock())

    def take_if_due(self) -> None:
        """Take one if the newest is old."""
        now_s = self._clock()
        if now_s - self._newest.at_s >= SNAPSHOT_S:
            self._newest = snapshot(self._scheduler, self._counts, now_s)

    def newest(self) -> EngineState:
        """As it was at the last step's end; of an idle engine, as it is. Any thread may ask."""
        # In this order: if the loop is idle now and has been since before `now_s`, the snapshot is of this idleness.
        now_s = self._clock()
        newest = self._newest
        stay = self._counts.stay
        if stay.part != "idle" or stay.since_s > now_s:
            return newest
        seconds = newest.step_seconds
        idle_s = seconds.idle + now_s - max(stay.since_s, newest.at_s)
        return msgspec.structs.replace(newest, at_s=now_s, step_seconds=msgspec.structs.replace(seconds, idle=idle_s))


def snapshot(scheduler: Scheduler, counts: LoopCounts, now_s: float) -> EngineState:
    """The scheduler and the loop as they are. In the core's thread, between steps."""
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
    )


def _waiting(scheduler: Scheduler) -> Waiting:
    """The first in order waits for what kept it from starting, and so do all after it, if nobody could pass it."""
    reasons = Counter(_reason(request, scheduler.hindrance or "order") for request in scheduler.waiting)
    return Waiting(**reasons)


def _reason(request: Request, hindrance: str) -> str:
    if request.is_held:
        return "grammar"
    return "leader" if is_led(request) else hindrance
