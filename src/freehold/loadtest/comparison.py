"""Two load tests against each other: what differs, how surely, and what difference could have been seen.

Where both runs asked the same (same data set, same seed), each request of one is compared with the same request of the
other: what differs between requests then cancels out. Intervals come from resampling repeats, and pairs within them. A
single repeat can't know what differs from run to run: compare a run with its own repetition first, to see that.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from freehold.loadtest.comparability import other_work
from freehold.loadtest.results import Detail, Interval, PointResult, RunResult
from freehold.loadtest.statistics import Values, bootstrap, least_requests

Verdict = Literal["better", "worse", "unclear", "cached", "incomparable"]
Basis = Literal["requests", "repeats", "runs"]

_Z = 1.959964  # of 95 % confidence
_POWER_Z = _Z + 0.841621  # and of 80 % power
_FEWEST_PAIRS = 8
_METRICS = ("ttft", "tpot", "e2el")
_OTHER_HIT_RATE = 0.05
"""From there on, hit rates that differ explain what differs between two runs."""

_LEAST = 1e-9  # what is divided by, where answers of one chunk have a TPOT of zero
_OTHER_PROMPTS = (
    "the runs asked different prompts here (another data set, seed or order of points, or a point measured anew), so "
    "that requests can't be paired and only large differences show; give both the same --seed and loads"
)
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t of 95 % confidence, by degrees of freedom from 1 on. Beyond, the normal distribution is near."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of two runs.

    Attributes:
        name: such as ``TTFT, mean``.
        unit: of `a`, `b` and `difference`.
        difference: `b` less `a`.
        ratio: `b` by `a`.
        interval, ratio_interval: 95 % confidence intervals of both; None if one repeat can't tell.
        num: pairs behind it; without pairs, the values of the smaller run.
        basis: what was compared: equal requests, equal repeats, or the runs as wholes.
        detectable: the smallest change, as a fraction of `a`, that such runs show in four of five cases.
        verdict: on `b`, as a user sees it; unclear if no change at all is within the interval; cached if the run that
            looks better had more of its prompts in the server's prefix cache; incomparable if the runs asked different
            work, or one of them is invalid there.
    """

    name: str
    unit: str
    a: float
    b: float
    difference: float
    ratio: float
    interval: Interval | None
    ratio_interval: Interval | None
    num: int
    basis: Basis
    detectable: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class PointComparison:
    """One load that both runs have."""

    a: PointResult
    b: PointResult
    differences: tuple[Difference, ...]
    pairs: "Pairs | None"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs.

    Attributes:
        notes: what a reader must know before believing it.
        warnings: that the runs asked different work; loads at which one is invalid, or the difference one of caches.
    """

    a: RunResult
    b: RunResult
    points: tuple[PointComparison, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pairs:
    """Equal requests of two runs that both succeeded.

    Attributes:
        repeats: that each pair belongs to.
        ttft, tpot, e2el: pairs of latencies in ms, (n, 2).
    """

    repeats: tuple[int, ...]
    ttft: Values
    tpot: Values
    e2el: Values

    def grouped(self, metric: str) -> list[Values]:
        """By repeat, without pairs of which one has no such value (TPOT of an answer of one token)."""
        values: Values = getattr(self, metric)
        repeats = np.asarray(self.repeats)
        is_whole = ~np.isnan(values).any(axis=1)
        return [values[is_whole & (repeats == repeat)] for repeat in sorted(set(self.repeats))]


def compare(a: RunResult, b: RunResult) -> Comparison:
    """Compare the points with equal loads."""
    notes = list(_notes(a, b))
    work = other_work(a, b)
    points = []
    for point in a.points:
        match = next((each for each in b.points if each.load == point.load), None)
        if match is None:
            notes.append(f"{point.load.label}: only the first run has it")
            continue
        pairs = None
        if _asked_the_same(a, b, point, match):
            pairs = pair(point.detail, match.detail) if point.detail and match.detail else None
        elif work is None:
            notes.append(f"{point.load.label}: {_OTHER_PROMPTS}")
        differences = tuple(_without_cache_effects(point, match, _differences(point, match, pairs)))
        if work is not None or not (point.is_valid and match.is_valid):
            differences = tuple(replace(each, verdict="incomparable") for each in differences)
        points.append(PointComparison(point, match, differences, pairs))
    loads = [point.load for point in a.points]
    notes += [f"{each.load.label}: only the second run has it" for each in b.points if each.load not in loads]
    warnings = [*([] if work is None else [work]), *_invalid(a, b)]
    warnings += [warning for each in points if (warning := _cache_warning(each))]
    return Comparison(a, b, tuple(points), tuple(notes), tuple(warnings))


def pair(a: Detail, b: Detail) -> Pairs | None:
    """Equal requests of two runs of the same load; None if there are hardly any."""
    places = {_place(b, index): index for index in range(len(b.errors)) if not b.errors[index]}
    repeats: list[int] = []
    rows: list[list[tuple[float, float]]] = []
    for index in range(len(a.errors)):
        other = places.get(_place(a, index))
        if a.errors[index] or other is None:
            continue
        repeats.append(a.repeats[index])
        rows.append(list(zip(_latencies(a, index), _latencies(b, other), strict=True)))
    if len(rows) < _FEWEST_PAIRS:
        return None
    table = np.asarray(rows) * 1000
    return Pairs(tuple(repeats), table[:, 0], table[:, 1], table[:, 2])


def of_pairs(name: str, groups: Sequence[Values], percent: float | None = None) -> Difference:
    """The difference of a latency's mean, or of a percentile, over pairs of equal requests.

    Args:
        groups: by repeat, pairs of ms, (n, 2).
        percent: of the percentile; None takes the mean.
    """

    def of_columns(sample: Values) -> Values:
        found: Values = sample.mean(axis=-2) if percent is None else np.percentile(sample, percent, axis=-2)
        return found

    def figures(chosen: Values) -> Values:
        of_a, of_b = of_columns(pairs[chosen.astype(int)]).T
        return np.asarray([of_b - of_a, of_b / np.maximum(of_a, _LEAST)])

    pairs = np.concatenate(list(groups))
    a, b = (float(each) for each in of_columns(pairs))
    numbers = np.split(np.arange(len(pairs), dtype=float), np.cumsum([len(group) for group in groups])[:-1])
    interval, ratio_interval = bootstrap(numbers, figures)
    error = (interval[1] - interval[0]) / (2 * _Z)
    if percent is None:  # of few pairs, resampling finds too little
        error = max(error, float((pairs[:, 1] - pairs[:, 0]).std(ddof=1)) / math.sqrt(len(pairs)))
    return Difference(
        name, "ms", a, b, b - a, b / max(a, _LEAST), interval, ratio_interval, len(pairs), "requests",
        _POWER_Z * error / max(a, _LEAST), _verdict(interval, less_is_better=True),
    )  # fmt: skip


def of_runs(name: str, a: Values, b: Values) -> Difference:
    """The difference of a latency's mean over runs that didn't ask the same (Welch).

    Args:
        a, b: ms.
    """
    means = max(float(a.mean()), _LEAST), max(float(b.mean()), _LEAST)
    errors = [float(each.std(ddof=1)) / math.sqrt(len(each)) for each in (a, b)]
    error, difference, ratio = math.hypot(*errors), means[1] - means[0], means[1] / means[0]
    # Of a ratio of two independent means, on a logarithmic scale (delta method).
    spread = _Z * math.hypot(errors[0] / means[0], errors[1] / means[1])
    interval = (difference - _Z * error, difference + _Z * error)
    return Difference(
        name, "ms", *means, difference, ratio, interval, (ratio * math.exp(-spread), ratio * math.exp(spread)),
        min(len(a), len(b)), "runs", _POWER_Z * error / means[0], _verdict(interval, less_is_better=True),
    )  # fmt: skip


def of_repeats(name: str, unit: str, a: Sequence[float], b: Sequence[float]) -> Difference:
    """The difference of a throughput over pairs of repeats (Student's paired t)."""
    gains = np.asarray(b) - np.asarray(a)
    num, means = len(gains), (max(float(np.mean(a)), _LEAST), max(float(np.mean(b)), _LEAST))
    difference, ratio = means[1] - means[0], means[1] / means[0]
    if num < 2:
        return Difference(name, unit, *means, difference, ratio, None, None, num, "repeats", None, "unclear")
    error = float(gains.std(ddof=1)) / math.sqrt(num)
    reach = (_T[num - 2] if num - 2 < len(_T) else _Z) * error
    interval = (difference - reach, difference + reach)
    ratios = (1 + interval[0] / means[0], 1 + interval[1] / means[0])
    return Difference(
        name, unit, *means, difference, ratio, interval, ratios, num, "repeats", (reach + 0.841621 * error) / means[0],
        _verdict(interval, less_is_better=False),
    )  # fmt: skip


def _differences(a: PointResult, b: PointResult, pairs: Pairs | None) -> Iterator[Difference]:
    known = [metric for metric in _METRICS if metric in a.latencies and metric in b.latencies]
    if pairs is not None:
        for metric in known:
            groups = pairs.grouped(metric)
            num = sum(map(len, groups))
            if num < _FEWEST_PAIRS:
                continue
            yield of_pairs(f"{metric.upper()}, mean", groups)
            for percent in (50, 95, 99):
                if num >= least_requests(percent):
                    yield of_pairs(f"{metric.upper()}, p{percent}", groups, percent)
    elif a.detail is not None and b.detail is not None:
        for metric in known:
            values = [_column(detail, _METRICS.index(metric)) for detail in (a.detail, b.detail)]
            if min(map(len, values)) >= _FEWEST_PAIRS:
                yield of_runs(f"{metric.upper()}, mean", *values)
    num = min(len(a.repeats), len(b.repeats))
    for name, unit in (("output_throughput", "tokens/s"), ("request_throughput", "requests/s")):
        by_repeat = (
            [getattr(each, name) for each in point.repeats[:num]] or [getattr(point, name)] for point in (a, b)
        )
        yield of_repeats(name.replace("_", " "), unit, *by_repeat)


def _hit_rates(a: PointResult, b: PointResult) -> tuple[float, float] | None:
    """Those of both, if they are known and differ so much that they explain other differences."""
    if a.hit_rate is None or b.hit_rate is None or abs(a.hit_rate - b.hit_rate) < _OTHER_HIT_RATE:
        return None
    return a.hit_rate, b.hit_rate


def _without_cache_effects(a: PointResult, b: PointResult, found: Iterator[Difference]) -> Iterator[Difference]:
    """The differences; none is called better or worse in favour of the run with the fuller cache, nor no difference at
    all where one repeat can't tell."""
    rates = _hit_rates(a, b)
    explained = None if rates is None else ("better" if rates[1] > rates[0] else "worse")
    for each in found:
        is_unknown = explained is not None and each.interval is None
        yield replace(each, verdict="cached") if is_unknown or each.verdict == explained else each


def _cache_warning(point: PointComparison) -> str | None:
    rates = _hit_rates(point.a, point.b)
    if rates is None:
        return None
    return (
        f"{point.a.load.label}: the server had {rates[0]:.0%} of A's prompts cached and {rates[1]:.0%} of B's, so the "
        "difference is one of caches, not of speed. Restart the server before each run, or give both --warm-cache "
        "(unless the cache is what you compare)."
    )


def _verdict(interval: Interval, *, less_is_better: bool) -> Verdict:
    if interval[0] <= 0 <= interval[1]:
        return "unclear"
    return "better" if (interval[1] < 0) == less_is_better else "worse"


def _asked_the_same(a: RunResult, b: RunResult, point: PointResult, other: PointResult) -> bool:
    """Requests of the same place have the same prompts at both points."""
    ours = (a.facts.dataset, a.facts.arguments.get("dataset"), point.seed, [each.seed for each in point.repeats])
    return ours == (
        b.facts.dataset,
        b.facts.arguments.get("dataset"),
        other.seed,
        [each.seed for each in other.repeats],
    )


def _invalid(a: RunResult, b: RunResult) -> Iterator[str]:
    for name, run in (("first", a), ("second", b)):
        if invalid := [point.load.label for point in run.points if not point.is_valid]:
            yield f"the {name} run is invalid at {', '.join(invalid)}: believe nothing of it there"


def _notes(a: RunResult, b: RunResult) -> Iterator[str]:
    for name, run in (("first", a), ("second", b)):
        if any(point.detail is None for point in run.points):
            yield f"The {name} run was saved without its requests; --save-detailed keeps them for comparisons."
    if min(len(point.repeats) for run in (a, b) for point in run.points) < 2:
        yield (
            "With one repeat, intervals hold what differs between requests, not what differs from run to run. Use "
            "--repeats 3 or more, and compare the first run with a repetition of itself."
        )


def _place(detail: Detail, index: int) -> tuple[int, str]:
    """The request's repeat, and its conversation and turn, with which its id ends."""
    return detail.repeats[index], "-".join(detail.request_ids[index].rsplit("-", 2)[-2:])


def _latencies(detail: Detail, index: int) -> tuple[float, float, float]:
    """Those of `_METRICS`, in seconds."""
    ttft, whole, num = detail.ttfts[index], detail.latencies[index], detail.output_lens[index]
    return ttft, (whole - ttft) / (num - 1) if num > 1 else math.nan, whole


def _column(detail: Detail, place: int) -> Values:
    """One of `_latencies` in ms, of all requests that have it."""
    whole = [index for index, error in enumerate(detail.errors) if not error]
    values = np.asarray([_latencies(detail, index)[place] for index in whole]) * 1000
    found: Values = values[~np.isnan(values)]
    return found
