"""What was counted in the last minute, to the tenth of a second."""

from collections import OrderedDict
from typing import NewType

SPAN_S = 60
TICKS_PER_S = 10

Tick = NewType("Tick", int)
"""A tenth of a second of the monotonic clock."""

_SPAN = SPAN_S * TICKS_PER_S


class Window:
    """A limit on the sum of amounts within any 60 seconds, wherever these begin.

    An amount counts from the tick it was added in until all of that tick is 60 seconds old: a tenth of a second too
    long at most, and never too short. Memory doesn't grow with the number of amounts. Times are seconds of one
    monotonic clock.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._amounts: OrderedDict[Tick, int] = OrderedDict()
        self._sum = 0

    def remaining(self, now_s: float) -> int:
        """What may be added now."""
        self._expire(now_s)
        return self.limit - self._sum

    def wait_s(self, now_s: float, amount: int) -> float | None:
        """Seconds until so much may be added, if nothing else comes; None if it is more than the limit."""
        if amount > self.limit:
            return None
        missing = amount - self.remaining(now_s)
        if missing <= 0:
            return 0.0
        for tick, counted in self._amounts.items():
            missing -= counted
            if missing <= 0:
                return _expires_s(tick) - now_s
        raise AssertionError("all of it together is at least what is missing")

    def add(self, now_s: float, amount: int) -> Tick:
        """Count an amount that may be added.

        Returns:
            Where it counts, for `lower`.
        """
        self._expire(now_s)
        tick = _tick(now_s)
        self._amounts[tick] = self._amounts.get(tick, 0) + amount
        self._sum += amount
        return tick

    def lower(self, tick: Tick, amount: int) -> None:
        """So much of what was added there was not used. Nothing changes if it doesn't count any more."""
        if tick in self._amounts:
            self._amounts[tick] -= amount
            self._sum -= amount

    def empty_in_s(self, now_s: float) -> float:
        """Seconds until nothing that was added so far counts any more."""
        self._expire(now_s)
        last = next((tick for tick, amount in reversed(self._amounts.items()) if amount), None)
        return 0.0 if last is None else _expires_s(last) - now_s

    def _expire(self, now_s: float) -> None:
        oldest = _tick(now_s) - _SPAN
        while self._amounts:
            tick = next(iter(self._amounts))
            if tick >= oldest:
                return
            self._sum -= self._amounts.pop(tick)


def _tick(now_s: float) -> Tick:
    return Tick(int(now_s * TICKS_PER_S))


def _expires_s(tick: Tick) -> float:
    return (tick + _SPAN + 1) / TICKS_PER_S
