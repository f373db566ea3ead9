"""Values counted by size, in the fixed buckets that Prometheus asks for."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """How often which values were observed.

    Args:
        bounds: upper bounds of the buckets, ascending; a value that equals one belongs below it. One more bucket has no
            bound.

    Attributes:
        counts: by bucket.
        total: sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float, num: int = 1) -> None:
        """A value was observed, `num` times."""
        self.counts[bisect_left(self.bounds, value)] += num
        self.total += value * num

    @property
    def num(self) -> int:
        """How many values were observed."""
        return sum(self.counts)
