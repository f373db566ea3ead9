"""Percentiles, confidence intervals, slopes."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from freehold.loadtest.results import Distribution, Interval

Values = NDArray[np.float64]

NUM_RESAMPLES = 1000
_SEED = 20240229
_BLOCK_VALUES = 1 << 20  # held at a time


def distribution(values_s: Sequence[float], percents: Sequence[float]) -> Distribution | None:
    """Latencies in seconds as figures in ms; None if there are none.

    Percentiles are interpolated linearly between the raw values, as `numpy.percentile` does.
    """
    if not values_s:
        return None
    values = np.asarray(values_s) * 1000
    found = np.percentile(values, list(percents))
    return Distribution(
        num=len(values_s),
        mean=float(values.mean()),
        median=float(np.median(values)),
        std=float(values.std()),
        percentiles={percent_text(percent): float(value) for percent, value in zip(percents, found, strict=True)},
    )


def percent_text(percent: float) -> str:
    """A percent as keys spell it: 99, 99.9."""
    return f"{percent:g}"


def least_requests(percent: float) -> int:
    """Values that a percentile needs: ten of them beyond it. From the median down, ten on the other side."""
    tail = 1 - max(percent, 100 - percent) / 100
    return round(10 / tail) if tail > 0 else 0


def bootstrap(
    groups: Sequence[Values], figures: Callable[[Values], Values], num_resamples: int = NUM_RESAMPLES
) -> list[Interval]:
    """95 % confidence intervals by resampling (percentile bootstrap).

    Each resample draws as many groups (the repeats of a point) as there are, and from each as many values as groups
    have on average, both with replacement. So what differs from repeat to repeat widens the intervals. With one repeat,
    they can't know of that.

    Args:
        groups: at least one of them has values.
        figures: from resamples x values to figures x resamples.

    Returns:
        For each figure, its bounds.
    """
    filled = [group for group in groups if len(group)]
    values, lengths = np.concatenate(filled), np.asarray([len(group) for group in filled])
    offsets = np.cumsum(lengths) - lengths
    shape = (len(filled), -(-len(values) // len(filled)))
    draw = np.random.default_rng(_SEED)
    found = []
    block = max(1, _BLOCK_VALUES // (shape[0] * shape[1]))
    for start in range(0, num_resamples, block):
        num = min(block, num_resamples - start)
        chosen = draw.integers(len(filled), size=(num, shape[0]))[..., None]
        within = (draw.random((num, *shape)) * lengths[chosen]).astype(int)
        found.append(figures(values[offsets[chosen] + within].reshape(num, -1)))
    bounds = np.percentile(np.concatenate(found, axis=1), [2.5, 97.5], axis=1)
    return [(float(low), float(high)) for low, high in bounds.T]


def slope(times: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The slope of a straight line through points (least squares), and by how many of its standard errors it is off 0.

    Points in a row aren't independent (a queue is long after it was long): the standard error is widened by the
    residuals' autocorrelation at lag one.
    """
    x, y = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    if len(x) < 3 or np.ptp(x) == 0:
        return 0.0, 0.0
    centred = x - x.mean()
    rise = float((centred @ y) / (centred @ centred))
    rest = y - y.mean() - rise * centred
    squares = float(rest @ rest)
    if squares <= 1e-12 * float(y @ y):
        return rise, float(np.inf) * np.sign(rise) if rise else 0.0
    correlation = min(max(float(rest[1:] @ rest[:-1]) / squares, 0.0), 0.99)
    error = float(np.sqrt(squares / (len(x) - 2) / (centred @ centred) * (1 + correlation) / (1 - correlation)))
    return rise, rise / error
