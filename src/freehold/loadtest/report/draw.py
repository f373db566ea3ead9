"""Plots as SVG.

Colours are variables, so that a plot follows a light or dark page. Series also differ in dash and mark: no reading
needs colour.
"""

import itertools
from collections.abc import Iterator, Sequence

from freehold.loadtest.report.plot import Bars, Callout, Line, Plot, Point, Rule
from freehold.loadtest.report.scale import Scale, scale, written
from freehold.loadtest.report.svg import content, element, path

WIDTH, HEIGHT = 640, 350
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 22, 58, 46
_DASHES = (None, "7 4", "2 3", "9 3 2 3", "1 4", "12 4")
_NUM_TONES = len(_DASHES)
_CHAR_WIDTH = 6.4  # of a label's font, about

STYLE = """
.plot{--ink:#1f2430;--faint:#5c6575;--grid:#dfe3ea;--paper:#fff;
--tone0:#1f6feb;--tone1:#c2410c;--tone2:#0f766e;--tone3:#9333ea;--tone4:#a16207;--tone5:#be185d;
font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
@media (prefers-color-scheme:dark){.plot{--ink:#e6e9ef;--faint:#a3acbc;--grid:#2c323d;--paper:#171a21;
--tone0:#79b0ff;--tone1:#ff9d66;--tone2:#4fd1c5;--tone3:#cfa4ff;--tone4:#e9c46a;--tone5:#ff8fbc}}
.plot text{fill:var(--ink)}.plot .faint{fill:var(--faint)}.plot .name{font-weight:600;font-size:14px}
.plot .grid{stroke:var(--grid)}.plot .axis{stroke:var(--faint)}.plot .paper{fill:var(--paper)}
.plot .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.plot .bar{fill-opacity:.6}
.plot .bound{stroke-width:1.5;opacity:.75}.plot .rule{stroke:var(--faint);stroke-dasharray:4 3}
.plot .halo{stroke:var(--paper);stroke-width:4px;paint-order:stroke;stroke-linejoin:round}
.plot .callout{fill:none;stroke:var(--ink);stroke-width:1.5}
""" + "".join(
    f".plot .stroke{tone}{{stroke:var(--tone{tone})}}.plot .fill{tone}{{fill:var(--tone{tone})}}"
    for tone in range(_NUM_TONES)
)


def draw(plot: Plot, plot_id: str, *, alone: bool = False) -> str:
    """The picture.

    Args:
        plot_id: unique in its page.
        alone: it is a file of its own, which brings its style along.
    """
    x = scale(plot.x, plot.xs(), _LEFT, WIDTH - _RIGHT, num_ticks=7)
    y = scale(plot.y, plot.ys(), HEIGHT - _BOTTOM, _TOP)
    parts = [
        element("title", {"id": f"{plot_id}-name"}, content(plot.name)),
        element("desc", {"id": f"{plot_id}-says"}, content(plot.says)),
    ]
    if alone:
        parts += [element("style", {}, content(STYLE)), _rectangle("paper", 0.0, 0.0, float(WIDTH), float(HEIGHT))]
    parts += [*_frame(plot, x, y), *_legend(plot.series)]
    for number, series in enumerate(plot.series):
        tone = number % _NUM_TONES
        parts += _bars(series, tone, x, y) if isinstance(series, Bars) else _line(series, tone, x, y)
    parts += [part for rule in plot.rules for part in _rule(rule, x, y)]
    parts += _callouts(plot.callouts, x, y)
    attributes: dict[str, object] = {
        "xmlns": "http://www.w3.org/2000/svg",
        "class": "plot",
        "viewBox": f"0 0 {WIDTH} {HEIGHT}",
        "role": "img",
        "aria-labelledby": f"{plot_id}-name {plot_id}-says",
    }
    return element("svg", attributes, *parts)


def _frame(plot: Plot, x: Scale, y: Scale) -> Iterator[str]:
    """Heading, grid, axes and what is written at them."""
    yield _text(plot.name, 12.0, 20.0, "name", anchor="start")
    for tick in y.ticks:
        yield _segment("grid", (x.start, y.at(tick)), (x.end, y.at(tick)))
        yield _text(written(tick), x.start - 8, y.at(tick) + 4, "faint", anchor="end")
    for tick in x.ticks:
        yield _segment("axis", (x.at(tick), y.start), (x.at(tick), y.start + 4))
        yield _text(written(tick), x.at(tick), y.start + 18, "faint")
    yield _segment("axis", (x.start, y.start), (x.end, y.start))
    yield _text(plot.x.label, (x.start + x.end) / 2, HEIGHT - 8.0, "faint")
    middle = (y.start + y.end) / 2
    turned: dict[str, object] = {"transform": f"rotate(-90 14 {middle:.1f})"}
    yield _text(plot.y.label, 14.0, middle, "faint", more=turned)


def _legend(all_series: Sequence[Line | Bars]) -> Iterator[str]:
    """Names of the series, if there is more than one."""
    if len(all_series) < 2:
        return
    widths = [26 + len(series.name) * _CHAR_WIDTH + 20 for series in all_series]
    is_tight = sum(widths) > WIDTH - _LEFT
    left, top = float(_LEFT), 32.0 if is_tight else 39.0
    for number, (series, width) in enumerate(zip(all_series, widths, strict=True)):
        tone = number % _NUM_TONES
        if left > _LEFT and left + width > WIDTH + 20:
            left, top = float(_LEFT), top + 15
        if isinstance(series, Bars):
            yield _rectangle(f"bar fill{tone}", left, top - 5, 20.0, 10.0)
        else:
            yield _segment(f"line stroke{tone}", (left, top), (left + 20, top), dash=_DASHES[tone])
            if series.marks:
                yield _mark(tone, (left + 10, top))
        yield _text(series.name, left + 26, top + 4, "", anchor="start")
        left += width


def _bars(series: Bars, tone: int, x: Scale, y: Scale) -> Iterator[str]:
    for left, right, height in series.bars:
        start, top = x.at(left), y.at(height)
        yield _rectangle(f"bar fill{tone}", start, top, max(x.at(right) - start - 1, 0.5), y.at(y.low) - top)


def _line(series: Line, tone: int, x: Scale, y: Scale) -> Iterator[str]:
    places = [(x.at(value), y.at(height)) for value, height in series.points]
    for at, low, high in series.bounds:
        yield _segment(f"bound stroke{tone}", (x.at(at), y.at(low)), (x.at(at), y.at(high)))
        for end in (low, high):
            yield _segment(f"bound stroke{tone}", (x.at(at) - 4, y.at(end)), (x.at(at) + 4, y.at(end)))
    if len(places) > 1 and series.joined:
        drawn = _stepped(places) if series.steps else places
        yield element("path", {"class": f"line stroke{tone}", "d": path(drawn), "stroke-dasharray": _DASHES[tone]})
    if series.marks or len(places) == 1:
        yield from (_mark(tone, place) for place in places)


def _stepped(places: Sequence[Point]) -> list[Point]:
    """The corners of a staircase through points."""
    corners = [places[0]]
    for before, after in itertools.pairwise(places):
        corners += [(after[0], before[1]), after]
    return corners


def _rule(rule: Rule, x: Scale, y: Scale) -> Iterator[str]:
    if rule.x is not None:
        at = x.at(rule.x)
        is_left = at > (x.start + x.end) / 2
        yield _segment("rule", (at, y.start), (at, y.end))
        yield _text(rule.label, at + (-5 if is_left else 5), y.end + 10, "halo", anchor="end" if is_left else "start")
    if rule.y is not None:
        yield _segment("rule", (x.start, y.at(rule.y)), (x.end, y.at(rule.y)))
        yield _text(rule.label, x.end, y.at(rule.y) - 5, "halo", anchor="end")


def _callouts(callouts: Sequence[Callout], x: Scale, y: Scale) -> Iterator[str]:
    """Circles with labels; labels of one point share it."""
    labels: dict[Point, list[str]] = {}
    for callout in callouts:
        labels.setdefault((x.at(callout.at[0]), y.at(callout.at[1])), []).append(callout.label)
    for (left, top), names in labels.items():
        yield element("circle", {"class": "callout", "cx": left, "cy": top, "r": 8.0})
        is_left = left > (x.start + x.end) / 2
        below = top < y.end + 24
        height = top + (26 if below else -14)
        yield _text(
            " · ".join(names), left + (4 if is_left else -4), height, "halo", anchor="end" if is_left else "start"
        )


def _mark(tone: int, at: Point) -> str:
    """A small shape, another one for each tone."""
    left, top = at
    shapes: tuple[tuple[Point, ...], ...] = (
        (),
        ((-4, -4), (4, -4), (4, 4), (-4, 4)),
        ((0, -5), (5, 4), (-5, 4)),
        ((0, -5), (5, 0), (0, 5), (-5, 0)),
        ((0, 5), (5, -4), (-5, -4)),
        ((-5, -2), (5, -2), (5, 2), (-5, 2)),
    )
    if not shapes[tone]:
        return element("circle", {"class": f"fill{tone}", "cx": left, "cy": top, "r": 4.0})
    corners = " ".join(f"{left + dx:.1f},{top + dy:.1f}" for dx, dy in shapes[tone])
    return element("polygon", {"class": f"fill{tone}", "points": corners})


def _rectangle(kind: str, left: float, top: float, width: float, height: float) -> str:
    return element("rect", {"class": kind, "x": left, "y": top, "width": width, "height": max(height, 0.0)})


def _segment(kind: str, start: Point, end: Point, dash: str | None = None) -> str:
    ends = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
    return element("line", {"class": kind, **ends, "stroke-dasharray": dash})


def _text(
    text: str, left: float, top: float, kind: str, *, anchor: str = "middle", more: dict[str, object] | None = None
) -> str:
    attributes: dict[str, object] = {"x": left, "y": top, "text-anchor": anchor, "class": kind or None, **(more or {})}
    return element("text", attributes, content(text))
