"""What a plot shows, as data. `freehold.loadtest.report.draw` makes it a picture."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from freehold.loadtest.report.scale import Axis

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """A series of points.

    Attributes:
        steps: between two points the value stays, then jumps.
        marks: each point has a mark.
        joined: lines join the points.
        bounds: for some points, within what the value lies: (x, low, high).
    """

    name: str
    points: Sequence[Point]
    steps: bool = False
    marks: bool = False
    joined: bool = True
    bounds: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars from the axis up: (left, right, height)."""

    name: str
    bars: Sequence[tuple[float, float, float]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the plot at one number of the x axis or of the y axis, with a label."""

    label: str
    x: float | None = None
    y: float | None = None


@dataclass(frozen=True, slots=True)
class Callout:
    """A point with a label."""

    label: str
    at: Point


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot.

    Attributes:
        name: its heading.
        says: a sentence for who can't see it.
    """

    name: str
    says: str
    x: Axis
    y: Axis
    series: Sequence[Line | Bars]
    rules: Sequence[Rule] = ()
    callouts: Sequence[Callout] = ()

    def xs(self) -> Iterator[float]:
        """All numbers that the x axis must hold."""
        for series in self.series:
            if isinstance(series, Bars):
                yield from (edge for left, right, _ in series.bars for edge in (left, right))
            else:
                yield from (x for x, _ in series.points)
        yield from (rule.x for rule in self.rules if rule.x is not None)
        yield from (callout.at[0] for callout in self.callouts)

    def ys(self) -> Iterator[float]:
        """All numbers that the y axis must hold."""
        for series in self.series:
            if isinstance(series, Bars):
                yield from (height for _, _, height in series.bars)
                yield 0.0
            else:
                yield from (y for _, y in series.points)
                yield from (bound for _, low, high in series.bounds for bound in (low, high))
        yield from (rule.y for rule in self.rules if rule.y is not None)
        yield from (callout.at[1] for callout in self.callouts)


def thinned(points: Sequence[Point], most: int = 400) -> list[Point]:
    """At most so many of the points, evenly by number, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    return [points[round(index * (len(points) - 1) / (most - 1))] for index in range(most)]


def cumulative(values: Sequence[float]) -> list[Point]:
    """The empirical distribution function: at each value, the percentage of values up to it."""
    ordered = sorted(values)
    steps = [(value, 100.0 * (index + 1) / len(ordered)) for index, value in enumerate(ordered)]
    return thinned([(ordered[0], 0.0), *steps]) if ordered else []
