"""Charts: each draws the columns that its legend names, and can be read with pointer, keyboard and as a table."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.server.page.an_hour import NUM_POINTS, hour
from tests.server.page.conftest import Visit
from tests.server.running import Server

CHARTS = {
    "requests": ("number", ["running", "waiting"]),
    "ttft": ("duration", ["ttft_p50_s", "ttft_p90_s", "ttft_p99_s"]),
    "ttft-parts": ("duration", ["tokenize_p90_s", "compile_p90_s", "queue_p90_s", "prefill_p90_s"]),
    "itl": ("duration", ["itl_p50_s", "itl_p90_s", "itl_p99_s"]),
    "tokens": ("number", ["computed", "output", "cached", "recomputed"]),
    "kv": ("percent", ["kv_held", "kv_cached"]),
    "hit-rate": ("percent", ["hit_rate"]),
    "steps": ("percent", ["run", "plan", "apply", "idle"]),
    "trouble": ("number", ["preemptions", "rejected", "slow_clients"]),
    "speculation": ("percent", ["accepted"]),
}
"""By id: what writes its values (of format.js), and the columns of its series."""

HEIGHT = 140
FORMATS: dict[str, dict[float, str]] = {
    "duration": {
        0: "0 ms",
        0.0000123: "12 µs",
        0.0213: "21.3 ms",
        0.85: "850 ms",
        1.239: "1.24 s",
        42.04: "42 s",
        125: "2 min 5 s",
        12_000: "3 h 20 min",
        200_000: "2 d 7 h",
    },
    "percent": {0: "0 %", 0.0001: "<0.1 %", 0.0044: "0.4 %", 0.413: "41 %", 1: "100 %"},
    "count": {7: "7", 12345: "12,345", 2_310_000: "2.3 M"},
    "number": {0: "0", 0.5: "0.50", 17.56: "17.6", 1234.5: "1,235"},
}


def written(page: Page, name: str, values: list[Any]) -> list[str]:
    """Values as a function of format.js writes them."""
    script = "([name, values]) => import('/page/format.js').then(format => values.map(value => format[name](value)))"
    found: list[str] = page.evaluate(script, [name, values])
    return found


def test_every_chart_has_the_values_of_its_columns(server: Server, visit: Visit) -> None:
    body = hour(server)
    page = visit(server, told=body)
    page.get_by_label("Span of the charts").select_option("300")
    columns = body["history"]["fine"]["columns"]
    for name, (form, of) in CHARTS.items():
        chart = page.locator(f"#chart-{name}")
        chart.get_by_text("Table", exact=True).click()
        newest = chart.locator("tbody tr").first.locator("td")
        oldest_shown = chart.locator("tbody tr").last.locator("td")
        expect(newest).to_have_text(written(page, form, [columns[column][-1] for column in of]))
        expect(oldest_shown).to_have_text(written(page, form, [columns[column][4] for column in of]))
        assert chart.locator(".legend b").all_inner_texts() == newest.all_inner_texts()

    line = page.locator("#chart-hit-rate .plot .line").get_attribute("d") or ""
    drawn = [HEIGHT * (1 - value) for value in columns["hit_rate"]]
    assert [float(place.split(" ")[1]) for place in line[1:].split("L")] == pytest.approx(drawn, abs=0.06)
    upper = page.locator("#chart-kv .plot .area").nth(1).get_attribute("d") or ""
    top = HEIGHT * (1 - columns["kv_held"][0] - columns["kv_cached"][0])
    assert float(upper[1:].split("L")[0].split(" ")[1]) == pytest.approx(top, abs=0.06), "one lies on the other"


@pytest.mark.slow
def test_an_hour_goes_on_with_the_newest_seconds(server: Server, visit: Visit) -> None:
    body = hour(server)
    coarse = body["history"]["coarse"]
    coarse["at"] = [at - 7 for at in coarse["at"]]
    page = visit(server, told=body)
    page.get_by_label("Span of the charts").select_option("3600")
    plot = page.get_by_role("slider", name="Prefix hit rate")
    expect(plot).to_have_attribute("aria-valuemax", str(NUM_POINTS + 7 - 1))


@pytest.mark.slow
def test_a_chart_can_be_read_with_keyboard_and_pointer(server: Server, visit: Visit) -> None:
    body = hour(server)
    page = visit(server, told=body)
    page.get_by_label("Span of the charts").select_option("300")
    values = written(page, "percent", body["history"]["fine"]["columns"]["hit_rate"])
    plot = page.get_by_role("slider", name="Prefix hit rate")

    def read() -> tuple[str | None, str]:
        when, _, value = (plot.get_attribute("aria-valuetext") or "").rpartition(": hits ")
        return when, value

    assert read() == ("newest", values[-1])
    plot.focus()
    for pressed, index in (("Home", 0), ("ArrowRight", 1), ("PageUp", 11), ("ArrowLeft", 10), ("End", NUM_POINTS - 1)):
        plot.press(pressed)
        assert plot.get_attribute("aria-valuenow") == str(index)
        assert read()[1] == values[index]
        expect(page.locator("#chart-hit-rate .legend b")).to_have_text(values[index])
    plot.press("Escape")
    assert read()[0] == "newest"
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    expect(page.locator("#chart-hit-rate .cursor")).to_be_visible()
    assert read()[1] in values[48:52]


@pytest.mark.slow
def test_what_was_not_measured_is_a_gap(server: Server, visit: Visit) -> None:
    body = hour(server)
    columns = body["history"]["fine"]["columns"]
    columns["hit_rate"] = [None] * 20 + [0.5] + [None] * 29 + [0.25] * 20 + [None] * 5 + [0.25] * 25
    columns["accepted"] = [None] * NUM_POINTS
    page = visit(server, told=body)
    page.get_by_label("Span of the charts").select_option("300")
    chart = page.locator("#chart-hit-rate")
    line = chart.locator(".plot .line").get_attribute("d") or ""
    assert [run.count("L") for run in line.split("M")[1:]] == [0, 44], "five seconds are bridged, half a minute isn't"
    assert (chart.locator(".plot .dots").get_attribute("d") or "").count("M") == 1
    page.get_by_label("Span of the charts").select_option("3600")
    expect(page.locator("#chart-speculation")).to_be_visible()
    body["history"]["coarse"]["columns"]["accepted"] = [None] * NUM_POINTS
    page.reload()
    expect(page.locator("#chart-hit-rate")).to_be_visible()
    expect(page.locator("#chart-speculation")).to_be_hidden()


@pytest.mark.slow
def test_numbers_are_written_for_people(server: Server, visit: Visit) -> None:
    page = visit(server)
    for name, examples in FORMATS.items():
        assert written(page, name, list(examples)) == list(examples.values())
        assert written(page, name, [None]) == ["–"]
