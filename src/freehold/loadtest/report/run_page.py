"""The page of one load test."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from freehold.loadtest.report.curves import TITLES, curves, percentile
from freehold.loadtest.report.distributions import distributions, percentiles
from freehold.loadtest.report.html import Cell, Table, between, figures, findings, page, paragraph, section, table
from freehold.loadtest.report.svg import content, element
from freehold.loadtest.report.timeline import timeline
from freehold.loadtest.results import PointResult, RunResult


def run_page(result: RunResult) -> str:
    """A self-contained HTML page: verdict, findings, points, plots, and how it was measured."""
    facts = result.facts
    title = f"Load test of {facts.model_id}" + (f": {facts.label}" if facts.label else "")
    inside = [
        paragraph(f"{facts.date} · {facts.dataset} prompts to {facts.base_url}{facts.endpoint}", "dim"),
        *(paragraph(sentence, "lead") for sentence in _verdict(result)),
        findings(_findings(result)),
        section("Points", table(_overview(result))),
    ]
    if over_points := curves(result):
        inside.append(section("What more load brings", figures(*over_points)))
    inside.append(
        section("Latencies", _how_distributed(result), *(_percentiles(point, result) for point in result.points))
    )
    inside.append(section("Over time", *_over_time(result)))
    inside.append(section("How it was measured", *_configuration(result)))
    return page(title, *inside, footer=f"Made by freehold bench {facts.version}. This page loads nothing.")


def _verdict(result: RunResult) -> list[str]:
    sentences = []
    if result.operating_point is not None:
        best = result.points[result.operating_point]
        assert best.goodput is not None
        limits = ", ".join(f"{TITLES.get(name, name)} {limit:g} ms" for name, limit in best.goodput.limits_ms.items())
        sentences.append(
            f"Operating point: {best.load.label}. {best.goodput.requests_per_s:.2f} requests/s are within all limits "
            f"({limits}), {best.goodput.fraction:.1%} of those sent."
        )
    if result.knee is not None:
        point = result.points[result.knee]
        sentences.append(f"Knee: {point.load.label}. Beyond it, more load hardly brings more tokens.")
    if not sentences:
        fastest = max(result.points, key=lambda point: point.output_throughput)
        sentences.append(f"Most output: {fastest.output_throughput:.1f} tokens/s at {fastest.load.label}.")
    return sentences


def _findings(result: RunResult) -> list[tuple[str, str]]:
    """What a reader must know, the worst first. What is true of several points is said once."""
    places: dict[tuple[str, str], list[str]] = {}
    for point in result.points:
        for kind, text in _of_point(point):
            places.setdefault((kind, text), []).append(point.load.label)
    is_one = len(result.points) == 1
    found = [
        (kind, text if is_one else f"{'all points' if len(where) == len(result.points) else ', '.join(where)}: {text}")
        for worst in ("bad", "note", "good")
        for (kind, text), where in places.items()
        if kind == worst
    ]
    found += [("note", note) for note in result.notes]
    if not any(kind == "bad" for kind, _ in found):
        found.insert(0, ("good", "Valid: the client kept up, and the load was what was asked for."))
    return found


def _of_point(point: PointResult) -> Iterator[tuple[str, str]]:
    yield from (("bad", f"Invalid: {each.text}") for each in point.invalid)
    if not point.is_complete:
        yield "bad", "interrupted before its end"
    yield from (("note", each.text) for each in point.warnings)
    if point.failed:
        kinds = ", ".join(f"{kind}: {number}" for kind, number in point.error_counts.items())
        yield "note", f"failed requests: {point.failed} ({kinds})"
    if point.binding_limit:
        yield "good", f"What limits the server: {point.binding_limit.text}"


def _overview(result: RunResult) -> Table:
    header = (
        "load", "req/s", "output tok/s", "95 % CI", "TTFT p50", "p95", "p99", "TPOT p50", "E2EL p50", "p99",
        "good req/s", "hits", "failed",
    )  # fmt: skip
    rows: list[list[Cell]] = []
    marked = set()
    for number, point in enumerate(result.points):
        names = [name for name, index in (("knee", result.knee), ("operating point", result.operating_point))
                 if index == number]  # fmt: skip
        if names:
            marked.add(number)
        rows.append([
            ", ".join([point.load.label, *names, *point.marks]),
            point.request_throughput, point.output_throughput, between(point.intervals.get("output_throughput")),
            *(_marked(point, metric, percent) for metric, percent in (
                ("ttft", "50"), ("ttft", "95"), ("ttft", "99"), ("tpot", "50"), ("e2el", "50"), ("e2el", "99"))),
            point.goodput.requests_per_s if point.goodput else None,
            None if point.hit_rate is None else f"{point.hit_rate:.1%}",
            point.failed,
        ])  # fmt: skip
    return Table("Latencies in ms. * stands on too few requests.", header, rows, frozenset(marked))


def _marked(point: PointResult, metric: str, percent: str) -> str | None:
    value = percentile(point, metric, percent)
    if value is None:
        return None
    return f"{value:.2f}" + ("*" if f"p{percent}_{metric}_ms" in point.too_few else "")


def _how_distributed(result: RunResult) -> str:
    drawn = distributions(result)
    if not drawn:
        return paragraph("The result holds no single requests; run with --save-detailed to see distributions.", "dim")
    return figures(*drawn)


def _percentiles(point: PointResult, result: RunResult) -> str:
    attributes: dict[str, object] = {"open": "" if len(result.points) == 1 else None}
    summary = element("summary", {}, content(f"All percentiles at {point.load.label}"))
    return element("details", attributes, summary, percentiles(point))


def _over_time(result: RunResult) -> list[str]:
    parts = []
    for number, point in enumerate(result.points):
        drawn = timeline(point, f"point{number}")
        if not drawn:
            continue
        attributes: dict[str, object] = {"open": "" if point is result.top else None}
        summary = element("summary", {}, content(f"At {point.load.label}"))
        parts.append(element("details", attributes, summary, figures(*drawn)))
    return parts or [paragraph("The result holds no single requests and no samples of the server.", "dim")]


def _configuration(result: RunResult) -> list[str]:
    facts = result.facts
    arguments = _flat(facts.arguments)
    told = _flat({"server": facts.server, **facts.metadata})
    rows: list[list[Cell]] = [
        ["model", facts.model_id], ["tokenizer", facts.tokenizer_id], ["endpoint", facts.base_url + facts.endpoint],
        ["data set", facts.dataset], ["conversations a repeat", facts.num_prompts], ["seed", facts.seed],
        ["freehold", facts.version], ["date", facts.date],
    ]  # fmt: skip
    lag: list[list[Cell]] = [
        [
            point.load.label, point.client.lag_p99_ms, point.client.lag_max_ms, point.client.schedule_delay_ms,
            None if point.client.achieved_rate is None else f"{point.client.achieved_rate:.1%}",
            f"{point.client.cpu_fraction:.0%}", point.num_warmups, len(point.repeats) or 1,
            ", ".join(f"{name} {number}" for name, number in point.token_sources.items()),
        ]
        for point in result.points
    ]  # fmt: skip
    header = ("load", "lag p99 (ms)", "lag max (ms)", "schedule delay (ms)", "rate reached", "CPU", "warm-ups",
              "repeats", "tokens counted from")  # fmt: skip
    return [
        table(Table("What was tested", ("", ""), rows, is_words=True)),
        element("h3", {}, "The load tester itself"),
        table(Table("Its lag and load", header, lag)),
        *(
            element("details", {}, element("summary", {}, name), table(Table(name, ("", ""), given, is_words=True)))
            for name, given in (("Arguments", arguments), ("What the server says of itself", told))
            if given
        ),
    ]


def _flat(given: Mapping[str, Any], prefix: str = "") -> list[list[Cell]]:
    """Nested values by their paths."""
    rows: list[list[Cell]] = []
    for name, value in given.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append([f"{prefix}{name}", value if isinstance(value, str) else msgspec.json.encode(value).decode()])
    return rows
