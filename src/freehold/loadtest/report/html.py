"""Pieces of a page: sections, tables, figures. All text is escaped; nothing is loaded from anywhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from freehold.loadtest.report import draw
from freehold.loadtest.report.plot import Line, Plot, thinned
from freehold.loadtest.report.svg import content, element

Cell = str | int | float | None
"""Of a table. None is unknown; floats have two decimals."""

_STYLE = """
:root{--page:#f6f7f9;--card:#fff;--text:#1f2430;--dim:#5c6575;--edge:#d9dde5;--bad:#b3261e;--bad-card:#fdecea;
--note:#7a5200;--note-card:#fff4d6;--good:#1b6b3a;--mark:#e4eefc}
@media (prefers-color-scheme:dark){:root{--page:#0f1116;--card:#171a21;--text:#e6e9ef;--dim:#a3acbc;--edge:#2c323d;
--bad:#ffb4ab;--bad-card:#3b1a18;--note:#f5d58a;--note-card:#33290f;--good:#8fd6a8;--mark:#1c2b45}}
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 4px;line-height:1.25;overflow-wrap:anywhere}
h2{font-size:19px;margin:38px 0 12px}
h3{font-size:15px;margin:22px 0 8px}
p{margin:6px 0;max-width:78ch}.dim{color:var(--dim)}
.lead{font-size:17px}
.findings{list-style:none;margin:14px 0;padding:0}
.findings li{margin:8px 0;padding:9px 14px;border-radius:8px;background:var(--note-card);color:var(--note);
border-left:4px solid currentColor}
.findings li.bad{background:var(--bad-card);color:var(--bad)}
.findings li.good{background:var(--card);color:var(--good)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px;margin:12px 0}
figure{margin:0;background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:10px 10px 8px}
figure{min-width:0;max-width:760px}
figure svg{width:100%;height:auto;display:block}
figcaption,.caption{color:var(--dim);font-size:13px;padding:2px 6px 4px}
details summary{cursor:pointer;color:var(--dim);font-size:13px;padding:2px 6px}
details[open] summary{margin-bottom:6px}
.scroll{overflow-x:auto;border:1px solid var(--edge);border-radius:10px;background:var(--card)}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:6px 9px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--edge)}
tbody tr:last-child>*{border-bottom:0}
th{font-weight:600}thead th{color:var(--dim);font-weight:600;vertical-align:bottom}
thead th,th[scope=row]{white-space:normal}
th[scope=row],thead th:first-child{text-align:left;min-width:12ch}caption{text-align:left;padding:8px 9px 2px}
.words td{text-align:left;white-space:normal;overflow-wrap:anywhere}
tr.marked>*{background:var(--mark)}
footer{margin-top:44px;color:var(--dim);font-size:13px}
/* Letters in a plot shrink with it: on narrow screens it scrolls instead. */
@media (max-width:540px){figure{overflow-x:auto}figure svg{width:520px}}
@media print{body{background:#fff}details>*{display:block}figure{break-inside:avoid}}
"""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with a name each.

    Attributes:
        caption: what it shows.
        header: names of the columns, that of the rows' names first.
        marked: numbers of rows to set off.
        is_words: cells are words, not numbers.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    marked: frozenset[int] = frozenset()
    is_words: bool = False


def table(given: Table) -> str:
    """A table that scrolls by itself where it is too wide."""
    head = element("tr", {}, *(element("th", {"scope": "col"}, content(name)) for name in given.header))
    body = (
        element(
            "tr",
            {"class": "marked" if number in given.marked else None},
            element("th", {"scope": "row"}, content(written(row[0]))),
            *(element("td", {}, content(written(cell))) for cell in row[1:]),
        )
        for number, row in enumerate(given.rows)
    )
    inside = element("caption", {"class": "caption"}, content(given.caption))
    inside += element("thead", {}, head) + element("tbody", {}, *body)
    # Reachable by keyboard, as it may scroll.
    scroll: dict[str, object] = {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": given.caption}
    return element("div", scroll, element("table", {"class": "words" if given.is_words else None}, inside))


def written(cell: Cell) -> str:
    """A cell's text."""
    if cell is None:
        return "–"
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def between(interval: tuple[float, float] | None) -> str | None:
    """An interval as a cell."""
    if interval is None:
        return None
    return f"{interval[0]:.2f} {'to' if interval[0] < 0 else '–'} {interval[1]:.2f}"


def figure(plot: Plot, numbers: Table, plot_id: str) -> str:
    """A plot, what it says, and its numbers as a table that opens."""
    caption = element("figcaption", {}, content(plot.says))
    opened = element("details", {}, element("summary", {}, "Numbers"), table(numbers))
    return element("figure", {}, draw.draw(plot, plot_id), caption, opened)


def plotted(plot: Plot, plot_id: str) -> str:
    """A plot of lines with some twenty points of each as its numbers."""
    lines = [series for series in plot.series if isinstance(series, Line)]
    rows: list[list[Cell]] = [[line.name, x, y] for line in lines for x, y in thinned(line.points, 20)]
    return figure(plot, Table(plot.name, ("", plot.x.label, plot.y.label), rows), plot_id)


def figures(*drawn: str) -> str:
    """Figures beside each other where there is room."""
    return element("div", {"class": "figures"}, *drawn) if drawn else ""


def section(heading: str, *inside: str) -> str:
    """A part of the page."""
    return element("section", {}, element("h2", {}, content(heading)), *inside)


def paragraph(text: str, kind: str | None = None) -> str:
    """A paragraph of plain text."""
    return element("p", {"class": kind}, content(text))


def findings(found: Sequence[tuple[str, str]]) -> str:
    """A list of (kind, text); kinds are ``bad``, ``note`` and ``good``."""
    items = (element("li", {"class": kind}, content(text)) for kind, text in found)
    return element("ul", {"class": "findings"}, *items) if found else ""


def page(title: str, *inside: str, footer: str = "") -> str:
    """A whole page, which allows itself to load nothing."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = (
        '<meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'
    )
    head += element("title", {}, content(title)) + f"<style>{_STYLE}{draw.STYLE}</style>"
    foot = element("footer", {}, content(footer)) if footer else ""
    body = element("main", {}, element("h1", {}, content(title)), *inside, foot)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'
