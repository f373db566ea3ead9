"""The last hour of a server: a point for each second of the last minutes, coarser ones for the rest, and percentiles.

Whoever keeps it calls `History.measured` for each duration and `History.close` once a second. All of it is bounded:
rings of points, and durations counted by size (`freehold.observe.spread`).
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Literal, TypeVar

from freehold.observe.spread import SlidingSpread, Spread
from freehold.observe.state import EngineState

Duration = Literal["ttft", "tokenize", "compile", "queue", "prefill", "decode", "itl", "e2e"]
DURATIONS: tuple[Duration, ...] = ("ttft", "tokenize", "compile", "queue", "prefill", "decode", "itl", "e2e")

FINE_S, NUM_FINE = 1, 300
COARSE_S, NUM_COARSE = 15, 240
WINDOWS_S = (60, 300, 3600)
"""Windows of the percentiles, in seconds."""
RECENT_S = 10
"""And of those that tell what is so now."""

NUM_DECIMALS = 5
"""Of what is kept: 10 µs, or a thousandth of a percent."""

Point = dict[str, float | None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What was so at one time. Totals count from the server's start on.

    Attributes:
        at_s: Unix seconds.
        engine: what the engine told last; None if it has told nothing.
        num_engine_starts: how often the engine has become ready.
        num_running: answers that the engine works on or that wait there, as the server knows.
        num_preparing: requests whose prompt isn't known yet.
        num_compiling: requests whose prompt is, and not yet what their answers must be.
        num_slow_clients: requests whose clients leave bytes unread.
        cpu_s: processor seconds that the server's process has used.
        lag_s: how late the event loop was.
        rejected_total, queue_full_total: requests that were turned away, for any reason, and as the queue was full.
    """

    at_s: float
    engine: EngineState | None
    num_engine_starts: int = 1
    num_running: int = 0
    num_preparing: int = 0
    num_compiling: int = 0
    num_slow_clients: int = 0
    cpu_s: float = 0.0
    lag_s: float = 0.0
    requests_total: int = 0
    rejected_total: int = 0
    queue_full_total: int = 0
    output_total: int = 0
    cached_total: int = 0


@dataclass(slots=True)
class Ring:
    """Points of the past, as columns."""

    step_s: int
    max_points: int
    at: deque[float] = field(default_factory=deque)
    columns: dict[str, deque[float | None]] = field(default_factory=dict)

    def append(self, at_s: float, point: Point) -> None:
        """A point, with the same names as all before."""
        self.at.append(at_s)  # unrounded: `since` is compared with it
        for name, value in point.items():
            self.columns.setdefault(name, deque()).append(None if value is None else round(value, NUM_DECIMALS))
        if len(self.at) > self.max_points:
            self.at.popleft()
            for column in self.columns.values():
                column.popleft()

    def since(self, at_s: float) -> tuple[list[float], dict[str, list[float | None]]]:
        """The points after a time, oldest first."""
        num_new = sum(1 for _ in takewhile(lambda at: at > at_s, reversed(self.at)))
        return _newest(self.at, num_new), {name: _newest(column, num_new) for name, column in self.columns.items()}


class History:
    """What a server keeps of its past. For one thread."""

    def __init__(self) -> None:
        self.fine = Ring(FINE_S, NUM_FINE)
        self.coarse = Ring(COARSE_S, NUM_COARSE)
        self.windows = {name: [SlidingSpread(window_s) for window_s in WINDOWS_S] for name in DURATIONS}
        self.last_seconds = {name: SlidingSpread(RECENT_S, RECENT_S) for name in DURATIONS}
        self._second = {name: Spread() for name in DURATIONS}
        self._quarter = {name: Spread() for name in DURATIONS}
        self._moments: deque[Moment] = deque(maxlen=COARSE_S + 1)
        self._gauges: list[Point] = []  # of the coarse point that is being made

    def measured(self, name: Duration, seconds: float) -> None:
        """A duration was measured just now. O(1)."""
        self._second[name].add(max(0.0, seconds))

    def close(self, moment: Moment, num_seconds: int = 1) -> None:
        """A second has passed, or several if whoever calls was held up."""
        before = self._moments[-1] if self._moments else None
        self._moments.append(moment)
        gauges = gauges_of(moment)
        self.fine.append(moment.at_s, {**gauges, **changes(before, moment), **percentiles(self._second)})
        for name in DURATIONS:
            for window in (*self.windows[name], self.last_seconds[name]):
                window.push(self._second[name])
                for _ in range(min(num_seconds - 1, window.window_s)):
                    window.push(Spread())
            self._quarter[name].merge(self._second[name])
            self._second[name] = Spread()
        self._gauges.append(gauges)
        if len(self._gauges) == COARSE_S:
            point = {**_means(self._gauges), **changes(self._moments[0], moment), **percentiles(self._quarter)}
            self.coarse.append(moment.at_s, point)
            self._gauges = []
            self._quarter = {name: Spread() for name in DURATIONS}

    def recent(self, num_seconds: int) -> Sequence[Moment]:
        """The last moments, oldest first: one more than seconds, so that they span these, or as many as there are."""
        return list(self._moments)[-(num_seconds + 1) :]


def gauges_of(moment: Moment) -> Point:
    """What is so at a moment."""
    point: Point = {"slow_clients": moment.num_slow_clients, "loop_lag_s": moment.lag_s}
    engine = moment.engine
    if engine is None:
        unknown = ("prefilling", "waiting", "waiting_rows", "waiting_blocks", "kv_held", "kv_cached", "kv_pinned")
        return {"running": moment.num_running, **dict.fromkeys(unknown), **point}
    num_blocks = max(1, engine.kv.num_blocks)
    return {
        "running": engine.num_running,
        "prefilling": engine.num_prefilling,
        "waiting": engine.waiting.total,
        "waiting_rows": engine.waiting.rows,
        "waiting_blocks": engine.waiting.blocks,
        "kv_held": engine.kv.held / num_blocks,
        "kv_cached": engine.kv.cached / num_blocks,
        "kv_pinned": engine.kv.pinned / num_blocks,
        **point,
    }


def changes(before: Moment | None, after: Moment) -> Point:
    """What happened between two moments, a second, or as shares."""
    names = ("requests", "rejected", "queue_full", "output", "cached", "server_cpu")
    point: Point = dict.fromkeys(names)
    if before is not None and (span_s := after.at_s - before.at_s) > 0:
        totals = ("requests_total", "rejected_total", "queue_full_total", "output_total", "cached_total", "cpu_s")
        for name, total in zip(names, totals, strict=True):
            point[name] = (getattr(after, total) - getattr(before, total)) / span_s
    return {**point, **engine_changes(before.engine if before else None, after.engine)}


def engine_changes(before: EngineState | None, after: EngineState | None) -> Point:
    """The same of what the engine told. None where it has told nothing new."""
    rates = ("preemptions", "computed", "recomputed", "steps", "drafts")
    parts = ("plan", "run", "apply", "idle")
    point: Point = dict.fromkeys((*rates, *parts, "hit_rate", "accepted", "per_draft"))
    if before is None or after is None or after.at_s <= before.at_s:
        return point
    span_s = after.at_s - before.at_s
    for name in rates:
        point[name] = (getattr(after, f"{name}_total") - getattr(before, f"{name}_total")) / span_s
    seconds = {name: getattr(after.step_seconds, name) - getattr(before.step_seconds, name) for name in parts}
    if (total_s := sum(seconds.values())) > 0:
        point.update({name: part_s / total_s for name, part_s in seconds.items()})
    if (num_looked_up := after.prefix_queries_total - before.prefix_queries_total) > 0:
        point["hit_rate"] = (after.prefix_hits_total - before.prefix_hits_total) / num_looked_up
    if (num_guessed := after.draft_tokens_total - before.draft_tokens_total) > 0:
        num_accepted = after.accepted_tokens_total - before.accepted_tokens_total
        point["accepted"] = num_accepted / num_guessed
        point["per_draft"] = 1 + num_accepted / max(1, after.drafts_total - before.drafts_total)
    return point


def percentiles(spreads: Mapping[Duration, Spread]) -> Point:
    """The median, the 90th and the 99th of each duration."""
    point: Point = {}
    for name, spread in spreads.items():
        found = spread.quantiles(0.5, 0.9, 0.99)
        point[f"{name}_p50_s"], point[f"{name}_p90_s"], point[f"{name}_p99_s"] = found
    return point


def _newest(items: deque[T], num_items: int) -> list[T]:
    """From the end, as most often only the last one is asked for."""
    return list(islice(reversed(items), num_items))[::-1]


def _means(points: Sequence[Point]) -> Point:
    """Of gauges; of those that are known."""
    means: Point = {}
    for name in points[0]:
        known = [value for point in points if (value := point[name]) is not None]
        means[name] = sum(known) / len(known) if known else None
    return means
