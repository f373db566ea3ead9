"""What a profile says: sums over steps, in the form in which they are answered as JSON and shown as tables."""

from typing import Literal

import msgspec

from freehold.observe.profile import MachineLimits

StepKind = Literal["decode", "prefill"]
"""``decode``: every request computes one token. ``prefill``: some compute more."""

Bound = Literal["memory", "arithmetic"]

WAITING, BETWEEN = "waiting", "between steps"
"""Threads' time in steps that isn't in any phase, and their time while the engine works and no step runs."""


class PhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of a group of steps.

    Attributes:
        share: of all threads' time; a group's shares sum to 1.
        step_s: seconds a step, as if all threads worked in this phase side by side.
        step_bytes, step_operations: that a step has to read and compute at the least.
        bytes_per_s, operations_per_s: at which it did so.
        bound: what limits it; None for phases whose work isn't counted.
        limit_share: time that its work would take at the machine's limit, as a share of the time that it took.
    """

    phase: str
    share: float
    step_s: float
    step_bytes: float = 0.0
    step_operations: float = 0.0
    bytes_per_s: float = 0.0
    operations_per_s: float = 0.0
    bound: Bound | None = None
    limit_share: float | None = None


class StepGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one kind and a like number of tokens.

    Attributes:
        min_tokens, max_tokens: of one step, those that were seen.
        step_s: seconds from one step's beginning to the next's, on average, without idle time.
        limit_share: of that, what the work would take at the machine's limit.
    """

    kind: StepKind
    min_tokens: int
    max_tokens: int
    num_steps: int
    num_rows: int
    num_tokens: int
    step_s: float
    tokens_per_s: float
    limit_share: float
    phases: tuple[PhaseRow, ...]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Over all steps.

    Attributes:
        num_tokens: computed, those of prompts and those fed back.
        steps_s, between_s: seconds in steps, and between them while the engine had work.
        idle_s: seconds without any request.
        tokens_per_s: over the time that wasn't idle; 0 without a step.
        limit_share: likewise.
    """

    num_steps: int
    num_tokens: int
    steps_s: float
    between_s: float
    idle_s: float
    tokens_per_s: float
    limit_share: float


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """What found no room in the profile, or failed."""

    skipped_steps: int
    failed_steps: int
    lost_spans: int
    lost_beats: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A profile's sums.

    Attributes:
        limits_age_s: seconds from the measuring of the machine's limits to the end of the profile.
    """

    summary: Summary
    groups: tuple[StepGroup, ...]
    missing: Missing
    limits: MachineLimits
    limits_age_s: float
