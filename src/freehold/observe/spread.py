"""Durations counted by size, so that percentiles of any number of them take a bounded room.

A bucket reaches to 1.05 times where the one before ends, and stands for its geometric middle: percentiles are within
2.5 % of a duration that was measured. Shorter ones than 0.1 ms count as that.
"""

import math
from bisect import bisect_left
from collections import Counter, deque

GROWTH = 1.05
SHORTEST_S = 1e-4
LONGEST_S = 1e6
MAX_ERROR = math.sqrt(GROWTH) - 1
"""Of a percentile, relative to a duration that was measured."""

_NUM_BUCKETS = 1 + math.ceil(math.log(LONGEST_S / SHORTEST_S, GROWTH))
_ENDS_S = [SHORTEST_S * GROWTH**number for number in range(_NUM_BUCKETS)]


class Spread:
    """How often which durations were measured."""

    __slots__ = ("_buckets", "num", "sum_s")

    def __init__(self) -> None:
        self.num = 0
        self.sum_s = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """A duration was measured. O(1)."""
        self.num += 1
        self.sum_s += seconds
        self._buckets[bisect_left(_ENDS_S, seconds)] += 1

    def merge(self, other: "Spread") -> None:
        """Add all durations of another one."""
        self.num += other.num
        self.sum_s += other.sum_s
        self._buckets.update(other._buckets)

    def take_out(self, other: "Spread") -> None:
        """Remove durations that were merged before."""
        self.num -= other.num
        self.sum_s = self.sum_s - other.sum_s if self.num else 0.0  # else roundings would stay for ever
        for bucket, num in other._buckets.items():
            self._buckets[bucket] -= num
            if not self._buckets[bucket]:
                del self._buckets[bucket]

    @property
    def mean_s(self) -> float | None:
        """None if nothing was measured."""
        return self.sum_s / self.num if self.num else None

    def quantiles(self, *shares: float) -> list[float | None]:
        """The durations that such shares of all don't exceed, in ascending order: of n by size, number
        ``ceil(share * n)``, to within `MAX_ERROR`. None if nothing was measured."""
        if not self.num:
            return [None] * len(shares)
        found: list[float | None] = []
        in_order = iter(sorted(self._buckets.items()))
        bucket, num_seen = next(in_order)
        for share in shares:
            while num_seen < share * self.num:
                bucket, num_more = next(in_order)
                num_seen += num_more
            found.append(_middle(bucket))
        return found

    def quantile(self, share: float) -> float | None:
        """One of `quantiles`."""
        return self.quantiles(share)[0]


class SlidingSpread:
    """Durations of the last so many seconds.

    Args:
        window_s: seconds; what is older is forgotten in `num_slots` steps, so the window reaches back up to a slot
            less than that.
    """

    def __init__(self, window_s: int, num_slots: int = 60) -> None:
        self.window_s = window_s
        self.total = Spread()
        self._slot_s = window_s // num_slots
        self._num_slots = num_slots
        self._slots: deque[Spread] = deque([Spread()])
        self._age = 0  # seconds in the newest slot

    def push(self, second: Spread) -> None:
        """A second has passed, in which these were measured."""
        if self._age == self._slot_s:
            self._slots.append(Spread())
            self._age = 0
            if len(self._slots) > self._num_slots:
                self.total.take_out(self._slots.popleft())
        self._age += 1
        if second.num:
            self._slots[-1].merge(second)
            self.total.merge(second)


def _middle(bucket: int) -> float:
    return SHORTEST_S if bucket == 0 else _ENDS_S[bucket - 1] * math.sqrt(GROWTH)
