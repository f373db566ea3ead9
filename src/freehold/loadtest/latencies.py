"""Latencies of the requests of a point: distributions, confidence intervals, and which percentiles stand on too few."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Distribution, Interval, Metric
from freehold.loadtest.statistics import (
    Values,
    bootstrap,
    bootstrap_clusters,
    distribution,
    least_requests,
    percent_text,
)

METRICS: tuple[Metric, ...] = ("ttft", "ttfot", "tpot", "itl", "e2el")


def values_s(records: Sequence[RequestRecord], metric: Metric) -> list[float]:
    """A latency of all requests that have it, from send; gaps of all of them for ``itl``."""
    if metric == "itl":
        return [gap for record in records for gap in record.gaps_s]
    name = {"ttft": "ttft_s", "ttfot": "ttfot_s", "tpot": "tpot_s", "e2el": "e2e_s"}[metric]
    found = (getattr(record, name) for record in records)
    return [value for value in found if value is not None]


def from_send(good: Sequence[RequestRecord], percents: Sequence[float]) -> dict[str, Distribution]:
    """All latencies of successful requests, by metric."""
    found = {metric: distribution(values_s(good, metric), percents) for metric in METRICS}
    return {metric: each for metric, each in found.items() if each is not None}


def from_intended(good: Sequence[RequestRecord], percents: Sequence[float]) -> dict[str, Distribution]:
    """Latencies that begin with the request, counted from its intended start."""
    values = {
        "ttft": [each.first_s - each.intended_s for each in good if each.first_s is not None],
        "ttfot": [each.first_output_s - each.intended_s for each in good if each.first_output_s is not None],
        "e2el": [each.ended_s - each.intended_s for each in good],
    }
    found = {metric: distribution(each, percents) for metric, each in values.items()}
    return {metric: each for metric, each in found.items() if each is not None}


def intervals(repeats: Sequence[Sequence[RequestRecord]], percents: Sequence[float]) -> dict[str, Interval]:
    """95 % confidence intervals by key, of latencies that two requests or more have.

    Gaps (``itl``) are drawn with all others of their request, on which they depend.

    Args:
        repeats: successful requests of each.
    """
    found: dict[str, Interval] = {}
    for metric in METRICS:
        bounds = _gap_intervals(repeats, percents) if metric == "itl" else _intervals(repeats, metric, percents)
        if not bounds:
            continue
        keys = [f"mean_{metric}_ms", *(f"p{percent_text(percent)}_{metric}_ms" for percent in percents)]
        found |= dict(zip(keys, bounds, strict=True))
        found[f"median_{metric}_ms"] = found[f"p50_{metric}_ms"]
    return found


def _intervals(repeats: Sequence[Sequence[RequestRecord]], metric: Metric, percents: Sequence[float]) -> list[Interval]:
    groups = [np.asarray(values_s(each, metric)) * 1000 for each in repeats]
    return bootstrap(groups, partial(_mean_and_percentiles, percents)) if sum(map(len, groups)) >= 2 else []


def _gap_intervals(repeats: Sequence[Sequence[RequestRecord]], percents: Sequence[float]) -> list[Interval]:
    groups = [[np.asarray(record.gaps_s) * 1000 for record in each if record.gaps_s] for each in repeats]
    return bootstrap_clusters(groups, percents) if sum(map(len, groups)) >= 2 else []


def too_few(found: dict[str, Distribution], percents: Sequence[float]) -> list[str]:
    """Keys of percentiles with fewer than ten values beyond them."""
    return [
        f"p{percent_text(percent)}_{metric}_ms"
        for metric, each in found.items()
        for percent in percents
        if each.num < least_requests(percent)
    ]


def _mean_and_percentiles(percents: Sequence[float], resamples: Values) -> Values:
    return np.concatenate([resamples.mean(axis=1)[None], np.percentile(resamples, list(percents), axis=1)])
