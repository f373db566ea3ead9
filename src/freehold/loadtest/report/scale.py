"""Axes of plots: where numbers stand, and the round ones that are written beside them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_SAME = 1e-9  # of a number's size: what differs less is the same
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a plot.

    Attributes:
        label: what it shows, with its unit: "TTFT (ms)".
        is_log: equal distances are equal ratios. Values that aren't positive have no place then.
        from_zero: a linear axis begins at 0.
    """

    label: str
    is_log: bool = False
    from_zero: bool = True


@dataclass(frozen=True, slots=True)
class Scale:
    """From a number on an axis to a place in the drawing.

    Attributes:
        low, high: numbers at the axis' ends, round ones.
        start, end: their places, in pixels.
        ticks: numbers to write, ascending, all between `low` and `high`.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    is_log: bool

    def at(self, value: float) -> float:
        """The place of a number; of one outside, the nearer end."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log10(max(value, self.low)), math.log10(low), math.log10(high)
        share = (value - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def scale(axis: Axis, values: Iterable[float], start: float, end: float, *, num_ticks: int = 6) -> Scale:
    """A scale that holds all finite values. Without any it reaches from 0 to 1, or from 1 to 10."""
    finite = [value for value in values if math.isfinite(value) and (value > 0 or not axis.is_log)]
    if axis.is_log:
        return _logarithmic(finite or [1.0, 10.0], start, end, num_ticks)
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if axis.from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    largest = max(abs(low), abs(high))
    if high - low <= largest * _SAME:
        high = low + (largest if largest > _SAME else 1.0)
    step = _round_step((high - low) / num_ticks)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(index * step for index in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], start, end, ticks, is_log=False)


def written(value: float) -> str:
    """A number of an axis, with at most three digits that count: ``1.5k``, ``0.25``."""
    size = abs(value)
    for unit, prefix in _PREFIXES:
        if size >= unit:
            return f"{value / unit:.3g}{prefix}"
    return f"{value:.3g}"


def _round_step(rough: float) -> float:
    """The next larger of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in _ROUND if factor * power >= rough * (1 - 1e-9))


def _logarithmic(values: Sequence[float], start: float, end: float, num_ticks: int) -> Scale:
    """Whole decades where they span many, else also 2 and 5 times powers of ten."""
    low, high = min(values), max(values)
    factors = (1.0, 2.0, 5.0) if math.log10(high / low) < num_ticks / 2 else (1.0,)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    rounds = sorted(factor * 10.0**power for power in powers for factor in factors)
    below = [value for value in rounds if value <= low * (1 + 1e-9)][-1]
    above = next(value for value in rounds if value >= high * (1 - 1e-9) and value > below)
    ticks = tuple(value for value in rounds if below <= value <= above)
    every = math.ceil(len(ticks) / (num_ticks * 2))
    return Scale(below, above, start, end, ticks[::every], is_log=True)
