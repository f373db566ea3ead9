"""Figures over the points of a run: what more load brings, and what it costs."""

from collections.abc import Sequence

from freehold.loadtest.report.html import Cell, Table, figure
from freehold.loadtest.report.plot import Callout, Line, Plot, Point
from freehold.loadtest.report.scale import Axis
from freehold.loadtest.results import PointResult, RunResult

TITLES = {"ttft": "TTFT", "ttfot": "TTFOT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL"}


def curves(result: RunResult) -> list[str]:
    """Figures of a run of several points; none of a single one."""
    if len(result.points) < 2:
        return []
    return [_throughput(result), _tradeoff(result), _latency(result, "ttft"), _latency(result, "tpot")]


def load_axis(points: Sequence[PointResult]) -> tuple[Axis, list[float]]:
    """The axis of loads, and where each point stands on it: its concurrency, its rate, or its number."""
    rates = [each.load.concurrency or _rate(each) for each in points]
    known = [rate for rate in rates if rate]
    if len(known) == len(points) and len({each.load.kind for each in points}) == 1:
        label = "requests at a time" if points[0].load.kind == "closed" else "requests per second asked for"
        return Axis(label, is_log=max(known) / min(known) > 8), [float(rate) for rate in known]
    return Axis("point, in the order of the run"), [float(number + 1) for number in range(len(points))]


def percentile(point: PointResult, metric: str, percent: str) -> float | None:
    """In ms; None if the point has none."""
    found = point.latencies.get(metric)
    return None if found is None else found.percentiles.get(percent)


def _rate(point: PointResult) -> float | None:
    rate = point.load.request_rate
    return None if rate is None or rate == "inf" else rate


def _throughput(result: RunResult) -> str:
    points = result.points
    axis, places = load_axis(points)
    output = [(x, each.output_throughput) for x, each in zip(places, points, strict=True)]
    bounds = [
        (x, *each.intervals["output_throughput"])
        for x, each in zip(places, points, strict=True)
        if "output_throughput" in each.intervals
    ]
    series = [Line("output tokens/s", output, marks=True, bounds=bounds)]
    good = [
        (x, each.output_throughput * each.goodput.fraction)
        for x, each in zip(places, points, strict=True)
        if each.goodput
    ]
    if good:
        series.append(Line("of these, in requests within the limits", good, marks=True))
    plot = Plot(
        "Throughput",
        "Output tokens per second at each load, with 95 % confidence intervals where they are known.",
        axis,
        Axis("output tokens/s"),
        series,
        callouts=_callouts(result, output),
    )
    rows: list[list[Cell]] = [
        [
            each.load.label,
            each.output_throughput,
            *(each.intervals.get("output_throughput") or (None, None)),
            each.request_throughput,
            each.goodput.requests_per_s if each.goodput else None,
        ]
        for each in points
    ]
    header = ("load", "output tok/s", "from", "to", "req/s", "good req/s")
    return figure(plot, Table("Throughput by load", header, rows), "throughput")


def _tradeoff(result: RunResult) -> str:
    """The throughput-latency curve."""
    series = []
    rows: list[list[Cell]] = [[each.load.label, each.output_throughput] for each in result.points]
    for percent in ("50", "95"):
        found = [(each.output_throughput, percentile(each, "ttft", percent)) for each in result.points]
        series.append(Line(f"TTFT p{percent}", [(x, y) for x, y in found if y is not None], marks=True))
        for row, (_, value) in zip(rows, found, strict=True):
            row.append(value)
    callouts = _callouts(result, series[1].points) if len(series[1].points) == len(rows) else []
    plot = Plot(
        "Throughput and latency",
        "Each mark is a point of the run: more load moves it right, and up once requests wait.",
        Axis("output tokens/s"),
        Axis("TTFT (ms)", is_log=True),
        series,
        callouts=callouts,
    )
    header = ("load", "output tok/s", "TTFT p50 (ms)", "TTFT p95 (ms)")
    return figure(plot, Table("Throughput and latency", header, rows), "tradeoff")


def _latency(result: RunResult, metric: str) -> str:
    axis, places = load_axis(result.points)
    rows: list[list[Cell]] = [[each.load.label] for each in result.points]
    series = []
    for percent in ("50", "95", "99"):
        key = f"p{percent}_{metric}_ms"
        found = [percentile(each, metric, percent) for each in result.points]
        for row, value in zip(rows, found, strict=True):
            row.append(value)
        placed = [(x, value) for x, value in zip(places, found, strict=True) if value is not None]
        bounds = [
            (x, *each.intervals[key])
            for x, each in zip(places, result.points, strict=True)
            if key in each.intervals and key not in each.too_few
        ]
        if placed:
            series.append(Line(f"p{percent}", placed, marks=True, bounds=bounds))
    title = TITLES[metric]
    plot = Plot(f"{title} by load", _MEANINGS[metric], axis, Axis(f"{title} (ms)"), series)
    header = ("load", f"{title} p50 (ms)", "p95", "p99")
    return figure(plot, Table(f"{title} by load", header, rows), f"{metric}-by-load")


_MEANINGS = {
    "ttft": "Time from sending a request to its first token.",
    "tpot": "Time per output token after the first, one value for each request.",
}


def _callouts(result: RunResult, places: Sequence[Point]) -> list[Callout]:
    marks = (("knee", result.knee), ("operating point", result.operating_point))
    return [Callout(name, places[index]) for name, index in marks if index is not None]
