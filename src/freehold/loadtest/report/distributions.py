"""Figures of how latencies are distributed within points, and their percentiles with what is known of them."""

from collections.abc import Sequence

import numpy as np

from freehold.loadtest.report.curves import TITLES
from freehold.loadtest.report.html import Cell, Table, between, figure, table
from freehold.loadtest.report.plot import Line, Plot, Rule, cumulative
from freehold.loadtest.report.scale import Axis
from freehold.loadtest.results import Detail, PointResult, RunResult

MAX_SHOWN = 6
"""Points in one figure; more lines can't be told apart."""

_LEAST_MS = 0.1
"""Smaller values (chunks that came at once have none between them) are drawn there, as logarithms have an end."""

_QUANTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def distributions(result: RunResult) -> list[str]:
    """A figure for each latency, with a curve for each point. None if the result doesn't have its requests."""
    shown = [point for point in chosen(result) if point.detail is not None]
    return [drawn for metric in ("ttft", "itl", "e2el") if (drawn := _figure(shown, metric))]


def chosen(result: RunResult) -> list[PointResult]:
    """Some of the points, evenly, with the first, the last, the knee and the operating point among them."""
    count = len(result.points)
    indices = {index for index in (0, count - 1, result.knee, result.operating_point) if index is not None}
    for index in np.linspace(0, count - 1, min(count, MAX_SHOWN)).round().astype(int):
        if len(indices) < MAX_SHOWN:
            indices.add(int(index))
    return [result.points[index] for index in sorted(indices)]


def percentiles(point: PointResult) -> str:
    """All latencies of a point, with confidence intervals, and a word where there are too few values."""
    percents = sorted({each for found in point.latencies.values() for each in found.percentiles}, key=float)
    rows: list[list[Cell]] = [
        [
            TITLES[metric],
            found.num,
            _cell(point, f"mean_{metric}_ms", found.mean),
            *(_cell(point, f"p{percent}_{metric}_ms", found.percentiles.get(percent)) for percent in percents),
        ]
        for metric, found in point.latencies.items()
    ]
    caption = f"Latencies at {point.load.label} in ms, with 95 % confidence intervals"
    return table(Table(caption, ("", "values", "mean", *(f"p{percent}" for percent in percents)), rows))


def _cell(point: PointResult, key: str, value: float | None) -> str | None:
    if value is None:
        return None
    if key in point.too_few:
        return f"{value:.2f} (n too small)"
    interval = between(point.intervals.get(key))
    return f"{value:.2f}" + (f" ({interval})" if interval else "")


def values_ms(detail: Detail, metric: str) -> list[float]:
    """A metric's values of requests that succeeded."""
    whole = [index for index, error in enumerate(detail.errors) if not error]
    if metric == "itl":
        return [gap * 1000 for index in whole for gap in detail.itls[index]]
    given = detail.ttfts if metric == "ttft" else detail.latencies
    return [given[index] * 1000 for index in whole]


def _figure(points: Sequence[PointResult], metric: str) -> str:
    found = [(point, values_ms(point.detail, metric)) for point in points if point.detail is not None]
    found = [(point, values) for point, values in found if values]
    if not found:
        return ""
    title = TITLES[metric]
    lowest = max(min(min(values) for _, values in found), _LEAST_MS)
    highest = max(max(values) for _, values in found)
    limit = next((point.goodput.limits_ms.get(metric) for point, _ in found if point.goodput), None)
    plot = Plot(
        f"{title}: distribution",
        f"Share of {'gaps' if metric == 'itl' else 'requests'} with {title} up to each value.",
        Axis(f"{title} (ms)", is_log=highest / lowest > 20, from_zero=False),
        Axis("%"),
        [
            Line(point.load.label, cumulative([max(each, lowest) for each in values]), steps=True)
            for point, values in found
        ],
        rules=[Rule(f"limit {limit:g} ms", x=limit)] if limit is not None else (),
    )
    rows: list[list[Cell]] = [
        [f"p{percent}", *(float(np.percentile(values, percent)) for _, values in found)] for percent in _QUANTILES
    ]
    header = ("", *(point.load.label for point, _ in found))
    return figure(plot, Table(f"{title} in ms", header, rows), f"{metric}-distribution")
