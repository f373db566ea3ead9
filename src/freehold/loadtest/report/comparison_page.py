"""The page that compares two load tests."""

from collections.abc import Sequence

import numpy as np

from freehold.loadtest.comparison import Comparison, Difference, Pairs, PointComparison, Verdict
from freehold.loadtest.report.comparison_text import BASES, label_of, verdicts
from freehold.loadtest.report.curves import load_axis
from freehold.loadtest.report.distributions import values_ms
from freehold.loadtest.report.html import (
    Cell,
    Table,
    between,
    figure,
    figures,
    findings,
    page,
    paragraph,
    section,
    table,
)
from freehold.loadtest.report.plot import Line, Plot, Rule, cumulative, thinned
from freehold.loadtest.report.scale import Axis

_KINDS: dict[Verdict, str] = {
    "incomparable": "bad", "cached": "bad", "worse": "bad", "unclear": "note", "better": "good",
}  # fmt: skip


def comparison_page(found: Comparison) -> str:
    """A self-contained HTML page: verdicts, tables with intervals, distributions and pairs."""
    first, second = label_of(found)
    notes = findings([*(("bad", warning) for warning in found.warnings), *(("note", note) for note in found.notes)])
    parts = [
        paragraph(f"{first} ({found.a.facts.date}) against {second} ({found.b.facts.date})", "dim"),
        paragraph("What B has more or less than A, with 95 % confidence intervals. Each interval stands by itself."),
        notes,
    ]
    if len(found.points) > 1:
        parts.append(section("Ratios by load", figures(_ratios(found))))
    for number, point in enumerate(found.points):
        said = [(_KINDS[kind], verdicts(point.differences, kind)) for kind in _KINDS]
        drawn = figures(*_figures(point, number))
        parts.append(
            section(point.a.load.label, findings([each for each in said if each[1]]), table(_numbers(point)), drawn)
        )
    if not found.points:
        parts.append(paragraph("The runs have no load in common; nothing can be compared.", "lead"))
    version = found.a.facts.version
    return page("Two load tests compared", *parts, footer=f"Made by freehold bench {version}. This page loads nothing.")


def _numbers(point: PointComparison) -> Table:
    rows: list[list[Cell]] = [
        [
            f"{each.name} ({each.unit})", each.a, each.b, each.difference, between(each.interval), f"{each.ratio:.3f}",
            None if each.ratio_interval is None else f"{each.ratio_interval[0]:.3f} – {each.ratio_interval[1]:.3f}",
            None if each.detectable is None else f"{each.detectable:.1%}", each.num, BASES[each.basis],
        ]
        for each in point.differences
    ]  # fmt: skip
    header = ("", "A", "B", "B − A", "95 % CI", "B / A", "95 % CI", "would have shown", "n", "compared")
    return Table("Differences", header, rows)


def _ratios(found: Comparison) -> str:
    axis, places = load_axis([point.a for point in found.points])
    series = []
    for name in ("TTFT, mean", "TPOT, mean", "output throughput"):
        at = [(x, each) for x, point in zip(places, found.points, strict=True)
              if (each := _named(point.differences, name))]  # fmt: skip
        if at:
            bounds = [(x, *each.ratio_interval) for x, each in at if each.ratio_interval]
            series.append(Line(name, [(x, each.ratio) for x, each in at], marks=True, bounds=bounds))
    plot = Plot("B / A", "Ratios of B to A at each load, with 95 % confidence intervals.", axis,
                Axis("B / A", from_zero=False), series, rules=[Rule("no difference", y=1.0)])  # fmt: skip
    rows: list[list[Cell]] = []
    for number, point in enumerate(found.points):
        ratios = (dict(line.points).get(places[number]) for line in series)
        rows.append([point.a.load.label, *(None if ratio is None else f"{ratio:.3f}" for ratio in ratios)])
    return figure(plot, Table("B / A", ("load", *(line.name for line in series)), rows), "ratios")


def _named(differences: Sequence[Difference], name: str) -> Difference | None:
    return next((each for each in differences if each.name == name), None)


def _figures(point: PointComparison, number: int) -> list[str]:
    drawn = [_distribution(point, metric, f"point{number}-{metric}") for metric in ("ttft", "e2el")]
    if point.pairs is not None:
        drawn.append(_scatter(point.pairs, f"point{number}-pairs"))
    return [each for each in drawn if each]


def _distribution(point: PointComparison, metric: str, plot_id: str) -> str:
    if point.a.detail is None or point.b.detail is None:
        return ""
    values = [(name, values_ms(run.detail, metric)) for name, run in (("A", point.a), ("B", point.b)) if run.detail]
    if not all(each for _, each in values):
        return ""
    title = metric.upper()
    plot = Plot(f"{title}: distribution", f"Share of requests with {title} up to each value.",
                Axis(f"{title} (ms)", from_zero=False), Axis("%"),
                [Line(name, cumulative(each), steps=True) for name, each in values])  # fmt: skip
    rows: list[list[Cell]] = [
        [f"p{percent}", *(float(np.percentile(each, percent)) for _, each in values)] for percent in (5, 25, 50, 75, 95)
    ]
    return figure(plot, Table(f"{title} in ms", ("", "A", "B"), rows), plot_id)


def _scatter(pairs: Pairs, plot_id: str) -> str:
    points = [(float(a), float(b)) for a, b in pairs.ttft]
    most = max(max(pair) for pair in points)
    slower = sum(b > a for a, b in points)
    plot = Plot("TTFT request by request", f"Each mark is a request of both runs; above the line it was slower in B "
                f"({slower} of {len(points)}).", Axis("A: TTFT (ms)"), Axis("B: TTFT (ms)"),
                [Line("requests", thinned(points), marks=True, joined=False),
                 Line("equal", [(0.0, 0.0), (most, most)])])  # fmt: skip
    rows: list[list[Cell]] = [["slower in B", slower], ["faster in B", sum(b < a for a, b in points)],
                              ["equal", sum(a == b for a, b in points)]]  # fmt: skip
    return figure(plot, Table("Requests", ("", "number"), rows), plot_id)
