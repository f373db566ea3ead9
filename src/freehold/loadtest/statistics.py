"""Percentiles, confidence intervals, slopes."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from freehold.loadtest.results import Distribution, Interval

Values = NDArray[np.float64]

NUM_RESAMPLES = 1000
_SEED = 20240229
_BLOCK_VALUES = 1 << 20  # held at a time
_MOST_COUNTED = 1 << 28  # values looked at over all resamples of clusters: some seconds
_FEWEST_RESAMPLES = 200


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
    values = np.concatenate(filled)
    drawn = _resamples([len(group) for group in filled], num_resamples)
    return _bounds(np.concatenate([figures(values[places]) for places in drawn], axis=1))


def bootstrap_clusters(groups: Sequence[Sequence[Values]], percents: Sequence[float]) -> list[Interval]:
    """95 % confidence intervals of the mean and percentiles of values that come in clusters, by resampling clusters.

    Values of one cluster (the gaps within an answer) depend on each other: drawn one by one, a thousand gaps of ten
    answers would pass for a thousand observations. So whole clusters are drawn, and groups as in `bootstrap`; each
    resample's figures are those of all values that it holds, as often as it holds them.

    Args:
        groups: clusters of each, none of them empty. At least one group has a cluster.

    Returns:
        Bounds of the mean, and of each percentile.
    """
    clusters = [cluster for group in groups for cluster in group]
    sizes, sums = np.asarray([len(each) for each in clusters]), np.asarray([each.sum() for each in clusters])
    values = np.concatenate(clusters)
    order = np.argsort(values)
    values, owners = values[order], np.repeat(np.arange(len(clusters)), sizes)[order]
    num_resamples = int(np.clip(_MOST_COUNTED // len(values), _FEWEST_RESAMPLES, NUM_RESAMPLES))
    found = []
    for places in _resamples([len(group) for group in groups if len(group)], num_resamples):
        for chosen in places:
            times = np.bincount(chosen, minlength=len(clusters))
            up_to = np.cumsum(times[owners])  # values of the resample, up to each in order
            ranks = (up_to[-1] - 1) * np.asarray(percents) / 100
            low = values[np.searchsorted(up_to, np.floor(ranks), side="right")]
            high = values[np.searchsorted(up_to, np.ceil(ranks), side="right")]
            found.append([times @ sums / (times @ sizes), *(low + (high - low) * (ranks % 1))])
    return _bounds(np.asarray(found).T)


def _resamples(lengths: Sequence[int], num_resamples: int) -> Iterator[NDArray[np.int64]]:
    """Places of what is drawn, of all groups one after the other: so many resamples, a block of them at a time.

    Args:
        lengths: of the groups; none is 0.
    """
    sizes = np.asarray(lengths)
    offsets = np.cumsum(sizes) - sizes
    shape = (len(sizes), -(-int(sizes.sum()) // len(sizes)))
    draw = np.random.default_rng(_SEED)
    block = max(1, _BLOCK_VALUES // (shape[0] * shape[1]))
    for start in range(0, num_resamples, block):
        num = min(block, num_resamples - start)
        chosen = draw.integers(len(sizes), size=(num, shape[0]))[..., None]
        within = (draw.random((num, *shape)) * sizes[chosen]).astype(int)
        yield (offsets[chosen] + within).reshape(num, -1)


def _bounds(figures: Values) -> list[Interval]:
    """Of each figure.

    Args:
        figures: figures x resamples.
    """
    bounds = np.percentile(figures, [2.5, 97.5], axis=1)
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
