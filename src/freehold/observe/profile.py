"""A profile of steps as it crosses from the engine to whoever asked, and the messages around it.

Numbers travel as bytes, in the machine's own order: both processes run on it, and packing them takes no time from the
engine. `freehold.observe.tally` and `freehold.observe.trace` make something of them.
"""

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple, NewType

import msgspec

ProfileId = NewType("ProfileId", int)

IDLE = "idle"
"""The place of a loop that waits for requests."""

MAX_STEPS = 2048
MAX_SPANS = 200_000
"""Of one profile; some 15 MB in all."""

_STEP_FIELDS, _SPAN_FIELDS, _WORK_FIELDS = 4, 8, 3


class StartProfile(msgspec.Struct, frozen=True, tag=True):
    """Profile the next steps: at most so many, and so many spans of them. It ends when they are done, or earlier when
    it is stopped."""

    profile_id: ProfileId
    max_steps: int
    max_spans: int


class StopProfile(msgspec.Struct, frozen=True, tag=True):
    """End a profile now. Ids of profiles that have ended are ignored."""

    profile_id: ProfileId


class Peak(msgspec.Struct, frozen=True):
    """The fastest arithmetic in a numeric format, in operations a second of all threads.

    Attributes:
        holds: clock, width and units explain it; else something disturbed the measuring.
    """

    format: str
    operations_per_s: float
    holds: bool


class MachineLimits(msgspec.Struct, frozen=True):
    """What the machine can do at most, as the engine measured it.

    Attributes:
        measured_ns: when, on the system's monotonic clock.
        bytes_per_s: reading memory.
        linear, attention: arithmetic of linear layers, and of attention.
    """

    isa: str
    num_threads: int
    measured_ns: int
    bytes_per_s: float
    linear: Peak
    attention: Peak


class ProfiledStep(NamedTuple):
    """A step that ran. `end_ns` is `start_ns` if it failed."""

    start_ns: int
    end_ns: int
    num_rows: int
    num_tokens: int


class Work(NamedTuple):
    """What a phase of a step has to read and compute at the least."""

    weight_bytes: float
    kv_bytes: float
    operations: float


class Span(NamedTuple):
    """A thread's work in one phase of a layer, from its first item to its last."""

    thread: int
    phase: int
    layer: int
    step: int
    start_ns: int
    end_ns: int
    busy_ns: int
    num_items: int


class Beat(NamedTuple):
    """The engine's loop entered a place, and stayed until the next beat."""

    place: int
    start_ns: int


class StepProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of some steps went. Times are in nanoseconds since the profile began.

    Attributes:
        phases: names of a step's parts.
        places: names of the parts of the engine's loop.
        steps, work, busy, spans, beats: see the methods of the same name.
        start_ns: when it began, on the system's monotonic clock.
        end_ns: when it ended.
        num_skipped_steps, num_lost_spans, num_lost_beats: that found no room.
    """

    phases: tuple[str, ...]
    places: tuple[str, ...]
    num_threads: int
    steps: bytes
    work: bytes
    busy: bytes
    spans: bytes
    beats: bytes
    start_ns: int
    end_ns: int
    num_skipped_steps: int
    num_lost_spans: int
    num_lost_beats: int
    limits: MachineLimits

    @property
    def num_steps(self) -> int:
        return len(self.steps) // (8 * _STEP_FIELDS)

    def each_step(self) -> Iterator[ProfiledStep]:
        """In order."""
        yield from map(ProfiledStep._make, _rows(_integers(self.steps), _STEP_FIELDS))

    def each_work(self) -> Iterator[list[Work]]:
        """By step, then by phase."""
        values = array("d", self.work)
        per_step = _WORK_FIELDS * len(self.phases)
        for at in range(0, len(values), per_step):
            yield [Work._make(row) for row in _rows(values[at : at + per_step], _WORK_FIELDS)]

    def each_busy(self) -> Iterator[list[int]]:
        """Nanoseconds that all threads together worked, by step, then by phase."""
        yield from map(list, _rows(_integers(self.busy), len(self.phases)))

    def each_span(self) -> Iterator[Span]:
        """By thread, each thread's in order."""
        yield from map(Span._make, _rows(_integers(self.spans), _SPAN_FIELDS))

    def each_beat(self) -> Iterator[Beat]:
        """In order."""
        yield from map(Beat._make, _rows(_integers(self.beats), 2))


class Profiled(msgspec.Struct, frozen=True, tag=True):
    """A profile has ended."""

    profile_id: ProfileId
    profile: StepProfile


class NotProfiled(msgspec.Struct, frozen=True, tag=True):
    """Steps can't be profiled. `code` and `message` make an `EngineError`."""

    profile_id: ProfileId
    code: str
    message: str


ProfileEnd = Profiled | NotProfiled


def _integers(raw: bytes) -> "array[int]":
    return array("q", raw)


def _rows(values: "array[Any]", num_fields: int) -> Iterator[tuple[Any, ...]]:
    columns = [iter(values)] * num_fields
    return zip(*columns, strict=True)
