"""Tokens and requests over time."""

from collections.abc import Sequence

import numpy as np

from freehold.loadtest.measurement import Measurement
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Interval
from freehold.loadtest.statistics import Values, bootstrap

NUM_WINDOWS = 20
"""Of a repeat, for the confidence interval of its throughput."""


def rate(number: float, duration_s: float) -> float:
    """Per second; 0 for no time at all."""
    return number / duration_s if duration_s > 0 else 0.0


def token_times(records: Sequence[RequestRecord]) -> tuple[Values, Values]:
    """When tokens came, and how many. A request's tokens are shared out evenly over its chunks; those of an answer that
    came whole came at its end."""
    times: list[float] = []
    numbers: list[float] = []
    for record in records:
        if not record.num_output:
            continue
        arrivals = [record.ended_s]
        if record.first_s is not None:
            arrivals = np.cumsum([record.first_s, *record.gaps_s]).tolist()
        times += arrivals
        numbers += [record.num_output / len(arrivals)] * len(arrivals)
    return np.asarray(times, dtype=float), np.asarray(numbers, dtype=float)


def peak_tokens_per_s(records: Sequence[RequestRecord]) -> float:
    """The most tokens that came within one of the seconds since the first token."""
    times, numbers = token_times(records)
    if not len(times):
        return 0.0
    return float(np.bincount((times - times.min()).astype(int), weights=numbers).max())


def peak_requests(records: Sequence[RequestRecord]) -> int:
    """The most requests that were in flight at the same time, failed ones included."""
    changes = sorted([(each.ended_s, -1) for each in records] + [(each.started_s, 1) for each in records])
    return int(np.cumsum([change for _, change in changes]).max()) if changes else 0


def tokens_per_chunk(records: Sequence[RequestRecord]) -> float | None:
    """Over all streamed answers whose tokens are known; None if there are none."""
    counted = [each for each in records if each.first_s is not None and each.num_output]
    num_chunks = sum(len(each.gaps_s) + 1 for each in counted)
    return sum(each.num_output or 0 for each in counted) / num_chunks if num_chunks else None


def throughput_intervals(measurements: Sequence[Measurement]) -> dict[str, Interval]:
    """95 % confidence intervals, from the throughput in windows of each repeat."""
    tokens, requests = [], []
    for each in measurements:
        good = [record for record in each.records if record.succeeded]
        if each.duration_s <= 0 or len(good) < 2:
            continue
        began_s = min(record.intended_s for record in each.records)
        edges = began_s + np.linspace(0, each.duration_s, NUM_WINDOWS + 1)
        width_s = each.duration_s / NUM_WINDOWS
        times, numbers = token_times(good)
        tokens.append(np.histogram(times, edges, weights=numbers)[0] / width_s)
        requests.append(np.histogram([record.ended_s for record in good], edges)[0] / width_s)
    found = {"output_throughput": tokens, "request_throughput": requests}
    return {key: bootstrap(groups, _mean)[0] for key, groups in found.items() if groups}


def _mean(resamples: Values) -> Values:
    means: Values = resamples.mean(axis=1)
    return means[None]
