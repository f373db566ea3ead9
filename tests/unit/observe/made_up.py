"""Profiles made up for tests: three phases, 2 threads, round numbers."""

from array import array
from collections.abc import Sequence
from typing import Any

from freehold.observe.profile import MachineLimits, Peak, StepProfile

MS = 1_000_000
LIMITS = MachineLimits(
    isa="avx2",
    num_threads=2,
    measured_ns=5_000_000_000,
    bytes_per_s=1e9,
    linear=Peak("int8", 4e9, True),
    attention=Peak("bf16", 2e9, True),
)
PHASES = ("norm", "qkv", "attention")
NO_WORK = (0.0, 0.0, 0.0)
Step = tuple[tuple[int, int, int, int], Sequence[int], Sequence[tuple[float, float, float]]]


def step(start_ms: float, end_ms: float, rows: int, tokens: int, busy_ms: Sequence[float], **work: Any) -> Step:
    """
    Args:
        busy_ms: of both threads together, by phase.
        work: by phase: bytes of weights, bytes of keys and values, operations.
    """
    times = (round(start_ms * MS), round(end_ms * MS), rows, tokens)
    return times, [round(ms * MS) for ms in busy_ms], [work.get(phase, NO_WORK) for phase in PHASES]


def profile(*steps: Step, **changes: Any) -> StepProfile:
    def packed(kind: str, rows: Any) -> bytes:
        return array(kind, [value for row in rows for value in row]).tobytes()

    fields = {
        "phases": PHASES,
        "places": ("plan", "collect", "idle"),
        "num_threads": 2,
        "steps": packed("q", (times for times, _, _ in steps)),
        "busy": packed("q", (busy for _, busy, _ in steps)),
        "work": packed("d", (one for _, _, work in steps for one in work)),
        "spans": b"",
        "beats": b"",
        "start_ns": 100_000_000_000,
        "end_ns": steps[-1][0][1] if steps else 0,
        "num_skipped_steps": 0,
        "num_lost_spans": 0,
        "num_lost_beats": 0,
        "limits": LIMITS,
    }
    return StepProfile(**{**fields, **changes})


def numbers(*rows: Sequence[int]) -> bytes:
    """Rows of integers as they travel."""
    return array("q", [value for row in rows for value in row]).tobytes()
