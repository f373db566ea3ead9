"""Clocks that tests set."""

from freehold.access.clocks import Clocks

NOON = 1_796_040_000.0
"""2026-11-30 12:00 UTC, the last day of a month."""


class Time:
    """A monotonic clock and a time of day that move only when told."""

    def __init__(self) -> None:
        self.monotonic_s = 1000.0
        self.wall_s = NOON
        self.clocks = Clocks(lambda: self.monotonic_s, lambda: self.wall_s)

    def passes(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds
