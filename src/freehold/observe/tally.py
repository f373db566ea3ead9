"""Sums over profiled steps: how long each phase took, and how long it would take at the machine's limit.

A phase's limit is the longer of two times: reading its weights, keys and values at the rate of memory, and computing
its operations at the peak of the format that it computes in. A step's limit is the sum over its phases, which follow
each other. Memory is bounded: steps are grouped by kind and by powers of two of their tokens.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from freehold.observe.profile import IDLE, MachineLimits, ProfiledStep, StepProfile, Work
from freehold.observe.report import BETWEEN, WAITING, Missing, PhaseRow, Report, StepGroup, StepKind, Summary

_S = 1e-9


@dataclass(slots=True)
class _PhaseSums:
    """One phase over a group's steps; times in nanoseconds."""

    busy_ns: int = 0
    num_bytes: float = 0.0
    operations: float = 0.0
    reading_ns: float = 0.0
    computing_ns: float = 0.0
    limit_ns: float = 0.0

    def add(self, busy_ns: int, work: Work, limits: MachineLimits) -> None:
        num_bytes = work.weight_bytes + work.kv_bytes
        peak = limits.attention if work.kv_bytes else limits.linear
        reading_ns = num_bytes / limits.bytes_per_s / _S
        computing_ns = work.operations / peak.operations_per_s / _S
        self.busy_ns += busy_ns
        self.num_bytes += num_bytes
        self.operations += work.operations
        self.reading_ns += reading_ns
        self.computing_ns += computing_ns
        self.limit_ns += max(reading_ns, computing_ns)

    def row(self, phase: str, threads_ns: float, num_threads: int, num_steps: int) -> PhaseRow:
        """
        Args:
            threads_ns: all threads' time in the group.
        """
        has_work = self.limit_ns > 0.0
        busy_s = self.busy_ns / num_threads * _S
        return PhaseRow(
            phase=phase,
            share=self.busy_ns / threads_ns,
            step_s=busy_s / num_steps,
            step_bytes=self.num_bytes / num_steps,
            step_operations=self.operations / num_steps,
            bytes_per_s=self.num_bytes / busy_s if busy_s else 0.0,
            operations_per_s=self.operations / busy_s if busy_s else 0.0,
            bound=("memory" if self.reading_ns >= self.computing_ns else "arithmetic") if has_work else None,
            limit_share=self.limit_ns * _S / busy_s if has_work and busy_s else None,
        )


@dataclass(slots=True)
class _GroupSums:
    """Steps of one group."""

    kind: StepKind
    min_tokens: int
    max_tokens: int
    phases: list[_PhaseSums]
    num_steps: int = 0
    num_rows: int = 0
    num_tokens: int = 0
    step_ns: int = 0
    between_ns: int = 0

    @property
    def limit_ns(self) -> float:
        return sum(phase.limit_ns for phase in self.phases)

    def add(
        self, step: ProfiledStep, between_ns: int, busy: Sequence[int], work: Sequence[Work], limits: MachineLimits
    ) -> None:
        self.min_tokens, self.max_tokens = min(self.min_tokens, step.num_tokens), max(self.max_tokens, step.num_tokens)
        self.num_steps += 1
        self.num_rows += step.num_rows
        self.num_tokens += step.num_tokens
        self.step_ns += step.end_ns - step.start_ns
        self.between_ns += between_ns
        for sums, busy_ns, one in zip(self.phases, busy, work, strict=True):
            sums.add(busy_ns, one, limits)

    def group(self, phases: Sequence[str], num_threads: int) -> StepGroup:
        time_ns = self.step_ns + self.between_ns
        waiting_ns = num_threads * self.step_ns - sum(sums.busy_ns for sums in self.phases)
        rows = [
            *zip(phases, self.phases, strict=True),
            (WAITING, _PhaseSums(waiting_ns)),
            (BETWEEN, _PhaseSums(num_threads * self.between_ns)),
        ]
        return StepGroup(
            kind=self.kind,
            min_tokens=self.min_tokens,
            max_tokens=self.max_tokens,
            num_steps=self.num_steps,
            num_rows=self.num_rows,
            num_tokens=self.num_tokens,
            step_s=time_ns * _S / self.num_steps,
            tokens_per_s=self.num_tokens / (time_ns * _S),
            limit_share=self.limit_ns / time_ns,
            phases=tuple(sums.row(name, num_threads * time_ns, num_threads, self.num_steps) for name, sums in rows),
        )


class Tally:
    """Profiles of one engine, added up."""

    def __init__(self, first: StepProfile) -> None:
        self._newest = first
        self._groups: dict[tuple[StepKind, int], _GroupSums] = {}
        self._idle_ns = 0
        self._skipped_steps = 0
        self._failed_steps = 0
        self._lost_spans = 0
        self._lost_beats = 0
        self.add(first)

    def add(self, profile: StepProfile) -> None:
        """Count a profile's steps. What lies before its first and after its last is no time between steps."""
        self._newest = profile
        self._skipped_steps += profile.num_skipped_steps
        self._lost_spans += profile.num_lost_spans
        self._lost_beats += profile.num_lost_beats
        idles = list(_idles(profile))
        self._idle_ns += sum(end_ns - start_ns for start_ns, end_ns in idles)
        last_ns: int | None = None
        steps = zip(profile.each_step(), profile.each_busy(), profile.each_work(), strict=True)
        for step, busy, work in steps:
            if step.end_ns <= step.start_ns:
                self._failed_steps += 1
                continue
            between_ns = 0
            if last_ns is not None:
                between_ns = step.start_ns - last_ns - _overlap(idles, last_ns, step.start_ns)
            last_ns = step.end_ns
            self._group(step, len(profile.phases)).add(step, between_ns, busy, work, profile.limits)

    def report(self) -> Report:
        """The sums."""
        phases, num_threads = self._newest.phases, self._newest.num_threads
        groups = [self._groups[key] for key in sorted(self._groups)]
        return Report(
            summary=self._summary(groups),
            groups=tuple(group.group(phases, num_threads) for group in groups),
            missing=Missing(
                skipped_steps=self._skipped_steps,
                failed_steps=self._failed_steps,
                lost_spans=self._lost_spans,
                lost_beats=self._lost_beats,
            ),
            limits=self._newest.limits,
            limits_age_s=(self._newest.start_ns + self._newest.end_ns - self._newest.limits.measured_ns) * _S,
        )

    def _group(self, step: ProfiledStep, num_phases: int) -> _GroupSums:
        kind: StepKind = "decode" if step.num_tokens == step.num_rows else "prefill"
        key = kind, (step.num_tokens - 1).bit_length()
        if key not in self._groups:
            phases = [_PhaseSums() for _ in range(num_phases)]
            self._groups[key] = _GroupSums(kind, step.num_tokens, step.num_tokens, phases)
        return self._groups[key]

    def _summary(self, groups: Sequence[_GroupSums]) -> Summary:
        steps_ns, between_ns = sum(g.step_ns for g in groups), sum(g.between_ns for g in groups)
        num_tokens = sum(g.num_tokens for g in groups)
        time_ns = steps_ns + between_ns
        return Summary(
            num_steps=sum(g.num_steps for g in groups),
            num_tokens=num_tokens,
            steps_s=steps_ns * _S,
            between_s=between_ns * _S,
            idle_s=self._idle_ns * _S,
            tokens_per_s=num_tokens / (time_ns * _S) if time_ns else 0.0,
            limit_share=sum(g.limit_ns for g in groups) / time_ns if time_ns else 0.0,
        )


def _idles(profile: StepProfile) -> Iterator[tuple[int, int]]:
    """When the engine had no request: start and end, in order."""
    start_ns: int | None = None
    for beat in profile.each_beat():
        if start_ns is not None:
            yield start_ns, beat.start_ns
        start_ns = beat.start_ns if profile.places[beat.place] == IDLE else None
    if start_ns is not None and not profile.num_lost_beats:
        yield start_ns, max(start_ns, profile.end_ns)


def _overlap(idles: Sequence[tuple[int, int]], start_ns: int, end_ns: int) -> int:
    """Of a time, what was idle."""
    first = bisect_right(idles, start_ns, key=lambda idle: idle[1])  # that ends later
    overlap_ns = 0
    for idle_start_ns, idle_end_ns in itertools.islice(idles, first, None):
        if idle_start_ns >= end_ns:
            break
        overlap_ns += min(end_ns, idle_end_ns) - max(start_ns, idle_start_ns)
    return overlap_ns
