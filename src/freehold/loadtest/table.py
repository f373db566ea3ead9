"""Results as text."""

from collections.abc import Iterator, Sequence

from freehold.loadtest.results import Distribution, Metric, PointResult, RunResult
from freehold.loadtest.statistics import least_requests, percent_text

TITLES: dict[str, str] = {
    "ttft": "Time to first token", "ttfot": "Time to first output token", "tpot": "Time per output token",
    "itl": "Inter-token latency (between chunks)", "e2el": "End-to-end latency",
}  # fmt: skip
_SHORT = {"ttft": "TTFT", "ttfot": "TTFOT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL"}
_TOO_FEW = "n too small"


def text(result: RunResult, metrics: Sequence[Metric], percents: Sequence[float]) -> str:
    """A whole run: a block for each point, and a table if there are several."""
    lines: list[str] = []
    for point in result.points:
        lines += [*_block(point, metrics, percents), ""]
    if len(result.points) > 1:
        lines += [*_overview(result), ""]
    lines += _conclusions(result)
    return "\n".join(lines).rstrip() + "\n"


def line(point: PointResult) -> str:
    """A point in one line."""
    cells = [
        f"{point.load.label}: {point.completed} of {point.completed + point.failed} requests",
        f"{point.request_throughput:.2f} req/s",
        f"{point.output_throughput:.1f} tok/s",
    ]
    cells += [f"{_SHORT[name]} p50 {point.latencies[name].median:.1f} ms" for name in ("ttft", "tpot")
              if name in point.latencies]  # fmt: skip
    if point.goodput:
        cells.append(f"{point.goodput.fraction:.0%} good")
    return "  ".join([", ".join(cells), *point.marks])


def _block(point: PointResult, metrics: Sequence[Metric], percents: Sequence[float]) -> Iterator[str]:
    yield f"== {point.load.label} =="
    requests = f"{point.completed}" + (f", and {point.failed} failed" if point.failed else "")
    rows = [
        ("Successful requests", requests),
        ("Duration (s)", f"{point.duration:.2f}" + (f" in {len(point.repeats)} repeats" if point.repeats[1:] else "")),
        ("Input tokens", f"{point.total_input_tokens}"),
        ("Output tokens", f"{point.total_output_tokens}"),
        ("Request throughput (req/s)", f"{point.request_throughput:.2f}{_bounds(point, 'request_throughput', 2)}"),
        ("Output throughput (tok/s)", f"{point.output_throughput:.2f}{_bounds(point, 'output_throughput', 1)}"),
        ("Total throughput (tok/s)", f"{point.total_token_throughput:.2f}"),
        ("Peak output (tok/s)", f"{point.max_output_tokens_per_s:.2f}"),
        ("Peak requests in flight", f"{point.max_concurrent_requests}"),
        ("Prefix-cache hit rate", "unknown" if point.hit_rate is None else f"{point.hit_rate:.1%}"),
    ]
    if point.goodput:
        limits = " ".join(f"{name}:{limit:g}" for name, limit in point.goodput.limits_ms.items())
        good = f"{point.goodput.requests_per_s:.2f} ({point.goodput.fraction:.1%} of requests within {limits})"
        rows.append(("Goodput (req/s)", good))
    for title, value in rows:
        yield f"{title + ':':36}{value}"
    for metric in metrics:
        if metric in point.latencies:
            yield from _latency(point, metric, point.latencies[metric], percents)
    queued = point.from_intended.get("e2el")
    if queued and point.client_queue and point.client_queue.percentiles["99"] >= 1:
        yield f"-- {TITLES['e2el']}, from the intended start --"
        yield f"{'P99 E2EL (ms):':36}{_shown(queued, 99)}"
    for word, findings in (("INVALID", point.invalid), ("Note", point.warnings)):
        for finding in findings:
            yield f"{word}: {finding.text}"
    if point.binding_limit:
        yield f"Limit: {point.binding_limit.text}"


def _latency(point: PointResult, metric: str, found: Distribution, percents: Sequence[float]) -> Iterator[str]:
    yield f"-- {TITLES[metric]} --"
    for name, value in (("Mean", found.mean), ("Median", found.median)):
        key = f"{name.lower()}_{metric}_ms"
        yield f"{f'{name} {_SHORT[metric]} (ms):':36}{value:.2f}{_bounds(point, key, 2)}"
    for percent in percents:
        name = percent_text(percent)
        bounds = _bounds(point, f"p{name}_{metric}_ms", 2) if found.num >= least_requests(percent) else ""
        yield f"{f'P{name} {_SHORT[metric]} (ms):':36}{_shown(found, percent)}{bounds}"


def _shown(found: Distribution, percent: float) -> str:
    least = least_requests(percent)
    if found.num < least:
        return f"{_TOO_FEW} ({found.num} of {least})"
    return f"{found.percentiles[percent_text(percent)]:.2f}"


def _bounds(point: PointResult, key: str, digits: int) -> str:
    if key not in point.intervals:
        return ""
    low, high = point.intervals[key]
    return f"  [{low:.{digits}f}, {high:.{digits}f}]"


def _overview(result: RunResult) -> Iterator[str]:
    header = ("load", "req/s", "tok/s", "TTFT p50", "p95", "TPOT p50", "E2EL p50", "p95", "good", "hits", "")
    rows: list[tuple[str, ...]] = [header]
    for number, point in enumerate(result.points):
        marks = [name for name, index in (("knee", result.knee), ("operating point", result.operating_point))
                 if index == number]  # fmt: skip
        rows.append((
            point.load.label,
            f"{point.request_throughput:.2f}",
            f"{point.output_throughput:.1f}",
            *(_cell(point, metric, percent) for metric, percent in
              (("ttft", 50), ("ttft", 95), ("tpot", 50), ("e2el", 50), ("e2el", 95))),
            f"{point.goodput.requests_per_s:.2f}" if point.goodput else "-",
            "-" if point.hit_rate is None else f"{point.hit_rate:.0%}",
            ", ".join([*marks, *point.marks]),
        ))  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        numbers = (f"{cell:>{width}}" for cell, width in zip(row[1:-1], widths[1:], strict=False))
        yield "  ".join([f"{row[0]:{widths[0]}}", *numbers, row[-1]]).rstrip()


def _cell(point: PointResult, metric: str, percent: float) -> str:
    found = point.latencies.get(metric)
    if found is None:
        return "-"
    mark = "" if found.num >= least_requests(percent) else "*"
    return f"{found.percentiles[percent_text(percent)]:.1f}{mark}"


def _conclusions(result: RunResult) -> Iterator[str]:
    if any(point.too_few for point in result.points) and len(result.points) > 1:
        yield "* too few requests for this percentile"
    if result.knee is not None:
        label = result.points[result.knee].load.label
        yield f"Knee: {label}: more load hardly brings more tokens, and TTFT has doubled."
    if result.operating_point is not None:
        best = result.points[result.operating_point]
        goodput = best.goodput.requests_per_s if best.goodput else 0.0
        limit = f" Binding limit: {best.binding_limit.text}." if best.binding_limit else ""
        yield f"Operating point: {best.load.label}, {goodput:.2f} good requests/s within the limits.{limit}"
    elif result.points[0].goodput:
        yield "Operating point: none; no valid point has a request within all limits."
