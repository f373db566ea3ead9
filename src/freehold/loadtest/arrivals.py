"""When requests are to start, if they come at a rate."""

import math

import numpy as np

from freehold.loadtest.results import Load


def start_times(load: Load, num: int, seed: int) -> list[float]:
    """Intended starts in seconds from the beginning, in order; the first one is 0.

    Gaps are drawn from a gamma distribution whose shape is the burstiness (1: a Poisson process, ``inf``: all alike),
    and stretched so that they sum up to what the rate asks for: the rate asked is the rate drawn. A ramp changes the
    rate from request to request.

    Args:
        load: of kind ``open``.
    """
    if load.request_rate == "inf" and not load.ramp_up_strategy:
        return [0.0] * num
    means = 1 / _rates(load, num - 1)
    if load.burstiness == "inf":
        gaps = means
    else:
        drawn = np.random.default_rng(seed).gamma(load.burstiness, means / load.burstiness)
        gaps = drawn * (means.sum() / drawn.sum()) if num > 1 else drawn
    return [0.0, *np.cumsum(gaps).tolist()]


def _rates(load: Load, num: int) -> np.ndarray:
    """The rate before each request but the first."""
    if not load.ramp_up_strategy:
        assert isinstance(load.request_rate, float | int)
        return np.full(num, float(load.request_rate))
    start, end = load.ramp_up_start_rps, load.ramp_up_end_rps
    assert start is not None
    assert end is not None
    progress = np.arange(num) / max(num - 1, 1)
    if load.ramp_up_strategy == "linear":
        return start + (end - start) * progress
    return start * np.exp(progress * math.log(end / start))
