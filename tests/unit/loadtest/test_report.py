"""The page of a load test says what the result says, loads nothing, and can be read in any way."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import msgspec
import pytest
from made_up_results import LIMIT_MS, QUEUEING, facts, point, run

from freehold.loadtest.report.run_page import run_page
from freehold.loadtest.report.timeline import _in_flight, _of_first_repeat, _token_rate
from freehold.loadtest.results import Finding, RepeatFigures, ServerSample

VOID = {"meta", "rect", "line", "circle", "path", "polygon"}


class Page(HTMLParser):
    """A page taken apart.

    Attributes:
        tables: by caption, rows of cells' texts.
    """

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.attributes, self.texts, self.tables = [], [], [], [], {}
        self._open, self._rows = [], []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._rows, self._caption = [], ""
        if tag == "tr":
            self._rows.append([])
        if tag in {"td", "th"}:
            self._rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        if tag == "table":
            self.tables[self._caption] = self._rows

    def handle_data(self, data):
        self.texts.append(data)
        if self._open and self._open[-1] == "caption":
            self._caption += data
        if self._open and self._open[-1] in {"td", "th"}:
            self._rows[-1][-1] += data

    @property
    def text(self):
        return "\n".join(self.texts)

    def table(self, beginning):
        (found,) = [rows for caption, rows in self.tables.items() if caption.startswith(beginning)]
        return found


@pytest.fixture(scope="module")
def result():
    made = run()
    points = list(made.points)
    points[3] = msgspec.structs.replace(points[3], binding_limit=QUEUEING)
    points[5] = msgspec.structs.replace(points[5], invalid=[Finding("lag", "the client lagged by 31 ms")])
    return replace(made, points=tuple(points))


@pytest.fixture(scope="module")
def page(result):
    return Page(run_page(result))


def test_every_point_stands_in_the_overview_with_its_figures(result, page):
    header, *rows = page.table("Latencies in ms.")
    assert len(rows) == len(result.points)
    for row, each in zip(rows, result.points, strict=True):
        cells = dict(zip(header, row, strict=True))
        assert cells["load"].startswith(each.load.label)
        assert cells["req/s"] == f"{each.request_throughput:.2f}"
        assert cells["output tok/s"] == f"{each.output_throughput:.2f}"
        low, high = each.intervals["output_throughput"]
        assert cells["95 % CI"] == f"{low:.2f} – {high:.2f}"
        assert cells["TTFT p50"] == f"{each.latencies['ttft'].percentiles['50']:.2f}"
        assert cells["TPOT p50"] == f"{each.latencies['tpot'].percentiles['50']:.2f}"
        assert cells["good req/s"] == f"{each.goodput.requests_per_s:.2f}"
        assert cells["failed"] == str(each.failed)
        assert cells["hits"] == "0.4%"


def test_percentiles_stand_with_their_intervals_or_with_a_word_of_warning(result, page):
    for each in result.points:
        header, *rows = page.table(f"Latencies at {each.load.label} ")
        ttft = dict(zip(header, rows[0], strict=True))
        found = each.latencies["ttft"]
        low, high = each.intervals["p50_ttft_ms"]
        assert ttft["values"] == str(found.num)
        assert ttft["mean"] == f"{found.mean:.2f}"
        assert ttft["p50"] == f"{found.percentiles['50']:.2f} ({low:.2f} – {high:.2f})"
        assert ttft["p90"] == f"{found.percentiles['90']:.2f}"
        assert ttft["p99"] == f"{found.percentiles['99']:.2f} (n too small)"
    assert any(cell.endswith("*") for row in page.table("Latencies in ms.") for cell in row)


def test_chunks_that_came_at_once_leave_the_plot_of_gaps_readable():
    """One gap of nothing and one of two seconds: the axis is logarithmic, and begins at a tenth of a millisecond."""
    found = run((8,))
    found.points[0].detail.itls[0][:2] = [0.0, 2.0]
    drawn = run_page(found).partition("ITL: distribution")[2].partition("<figcaption")[0]
    assert ">0.1<" in drawn
    assert ">10<" in drawn


def test_knee_operating_point_and_limits_are_named(result, page):
    best = result.points[3]
    assert f"Operating point: 8 at a time. {best.goodput.requests_per_s:.2f} requests/s" in page.text
    assert "Knee: 16 at a time." in page.text
    assert f"8 at a time: What limits the server: {QUEUEING.text}" in page.text
    overview = [row[0] for row in page.table("Latencies in ms.")]
    assert "8 at a time, operating point" in overview
    assert "16 at a time, knee" in overview
    assert page.text.count(f"limit {LIMIT_MS:g} ms") == 1


def test_an_invalid_point_is_called_so_before_anything_else(page):
    text = page.text
    assert text.index("32 at a time: Invalid: the client lagged by 31 ms") < text.index("Points")
    assert "32 at a time, INVALID" in [row[0] for row in page.table("Latencies in ms.")]
    assert "Valid: " not in text
    assert "Valid: the client kept up" in Page(run_page(run((1,)))).text


def test_what_is_true_of_all_points_is_said_once(page):
    assert page.text.count("failed requests: 1 (connection reset: 1)") == 1
    assert "all points: failed requests" in page.text


def test_an_interrupted_run_is_called_so():
    made = run((1, 2))
    points = (made.points[0], msgspec.structs.replace(made.points[1], is_complete=False))
    assert "2 at a time: interrupted" in Page(run_page(replace(made, points=points))).text


def test_the_page_loads_nothing(result):
    text = run_page(result)
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in {"src", "href"} or name.startswith("on")]
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    outside = set(re.findall(r"https?://[^\s\"'<]+", text)) - {"http://www.w3.org/2000/svg"}
    assert outside == {"http://127.0.0.1:8000/v1/completions"}


def test_the_page_can_be_heard(page):
    assert len(page.ids) == len(set(page.ids))
    named = [value for name, value in page.attributes if name == "aria-labelledby"]
    assert len(named) == page.tags.count("svg") == page.tags.count("figure") > 10
    assert {each for value in named for each in value.split()} <= set(page.ids)
    assert page.tags.count("table") == page.tags.count("caption") >= page.tags.count("figure")
    assert page.tags.count("th") > page.tags.count("table")
    assert ("lang", "en") in page.attributes


def test_both_themes_have_all_their_colours(result):
    text = run_page(result)
    style = text[text.index("<style>") : text.index("</style>")]
    used = set(re.findall(r"var\((--\w[\w-]*)\)", style))
    dark = "".join(re.findall(r"@media \(prefers-color-scheme:dark\)\{(.*?\})\}", style, re.DOTALL))
    assert used <= set(re.findall(r"(--\w[\w-]*):", dark))


def test_names_of_strangers_are_text():
    hostile = '<script>alert("x")</script>'
    made = replace(run((1,)), facts=facts(model_id=hostile, label=hostile, metadata={hostile: hostile}))
    made = replace(made, points=(msgspec.structs.replace(made.points[0], warnings=[Finding("x", hostile)]),))
    page = Page(run_page(made))
    assert "script" not in page.tags
    assert page.text.count(hostile) > 5


def test_a_result_without_requests_or_metrics_says_so():
    bare = msgspec.structs.replace(point(1), detail=None, server=msgspec.structs.replace(point(1).server, timeline=[]))
    page = Page(run_page(replace(run((1,)), points=(bare,))))
    assert "run with --save-detailed" in page.text
    assert "no samples of the server" in page.text


def test_configuration_and_the_testers_own_lag_are_there(page):
    assert ["dataset.random_input_len", "100"] in page.table("Arguments")
    assert ["gpu", "none"] in page.table("What the server says")
    lag = page.table("Its lag and load")
    assert lag[1][1:3] == ["0.40", "1.20"]


def test_in_flight_counts_begin_and_end_with_requests():
    detail = point(4, num=30).detail
    points = _in_flight(detail, range(30))
    assert max(num for _, num in points) == 4
    assert points[-1][1] == 0
    for at_s, num in points:
        assert num == sum(
            start <= at_s < start + took for start, took in zip(detail.start_times, detail.latencies, strict=True)
        )


def test_the_servers_samples_are_those_of_the_repeat_that_is_shown():
    one = point(4, num=30)
    samples = [ServerSample(at_s, 1.0, 0.0, 0.5) for at_s in (-0.01, 0.5, 1.0, 1.02, 1.5, 2.0)]
    repeats = [RepeatFigures(seed, 1.0, 30, 0, 30.0, 600.0, {}) for seed in (1, 2)]
    server = msgspec.structs.replace(one.server, timeline=samples)
    both = msgspec.structs.replace(one, server=server, repeats=repeats)
    assert [each.at_s for each in _of_first_repeat(both)] == [0.0, 0.5, 1.0, 1.02]
    alone = msgspec.structs.replace(both, repeats=repeats[:1])
    assert [each.at_s for each in _of_first_repeat(alone)] == [0.0, 0.5, 1.0, 1.02, 1.5, 2.0]


def test_tokens_over_time_add_up_to_the_tokens():
    detail = point(4, num=30).detail
    rates = _token_rate(detail, range(30))
    width_s = rates[1][0] - rates[0][0]
    assert sum(rate for _, rate in rates) * width_s == pytest.approx(sum(detail.output_lens), abs=1)
