"""Plots are well-formed SVG that shows the numbers it was given."""

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.loadtest.report.draw import HEIGHT, WIDTH, draw
from freehold.loadtest.report.plot import Bars, Callout, Line, Plot, Rule, cumulative, thinned
from freehold.loadtest.report.scale import Axis, scale, written

SVG = "{http://www.w3.org/2000/svg}"
finite = st.floats(-1e12, 1e12)
positive = st.floats(1e-6, 1e9)


def parsed(plot, **how):
    return ElementTree.fromstring(draw(plot, "p", **how))


def plot(series, *, x=None, y=None, **more):
    return Plot("Name", "Says.", x or Axis("x"), y or Axis("y"), series, **more)


@settings(max_examples=40, deadline=None)
@given(values=st.lists(finite, min_size=1, max_size=20), from_zero=st.booleans())
def test_a_linear_scale_holds_all_values_between_round_ends(values, from_zero):
    made = scale(Axis("x", from_zero=from_zero), values, 60, 600)
    near = 1e-8 * max(map(abs, values)) + 1e-8
    assert made.low <= min(values) + near
    assert made.high >= max(values) - near
    assert list(made.ticks) == sorted(set(made.ticks))
    assert 2 <= len(made.ticks) <= 12
    assert made.at(made.low) == 60
    assert made.at(made.high) == 600


@settings(max_examples=40, deadline=None)
@given(values=st.lists(positive, min_size=1, max_size=20))
def test_a_logarithmic_scale_makes_equal_ratios_equally_long(values):
    made = scale(Axis("x", is_log=True), values, 0, 100)
    assert made.low <= min(values) * (1 + 1e-6)
    assert made.high >= max(values) * (1 - 1e-6)
    assert len(made.ticks) <= 12
    middle = math.sqrt(made.low * made.high)
    assert made.at(middle) == pytest.approx(50, abs=1e-6)


def test_what_has_no_place_on_a_scale_is_left_at_its_ends():
    made = scale(Axis("x", is_log=True), [0.0, -5.0, math.nan, 10.0, 1000.0], 0, 100)
    assert (made.low, made.high) == (10.0, 1000.0)
    assert made.at(0.0) == 0
    assert made.at(1e9) == 100
    assert scale(Axis("x"), [], 0, 100).ticks[0] == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (12, "12"), (1500, "1.5k"), (2.5e6, "2.5M"), (-3000, "-3k"), (3e9, "3G")],
)
def test_numbers_on_axes_are_short(value, text):
    assert written(value) == text


def test_a_line_goes_through_its_points():
    drawn = parsed(plot([Line("a", [(0, 0), (50, 25), (100, 100)], marks=True)]))
    circles = list(drawn.iter(SVG + "circle"))
    places = [(float(each.get("cx")), float(each.get("cy"))) for each in circles]
    (left, bottom), middle, (right, top) = places
    assert middle == pytest.approx(((left + right) / 2, bottom - (bottom - top) / 4), abs=0.2)
    (path,) = drawn.iter(SVG + "path")
    corners = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", path.get("d"))]
    assert corners == places


def test_steps_stay_until_they_jump():
    drawn = parsed(plot([Line("a", [(0, 10), (5, 20), (10, 0)], steps=True)]))
    (path,) = drawn.iter(SVG + "path")
    corners = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", path.get("d"))]
    assert len(corners) == 5
    assert corners[1][1] == corners[0][1]
    assert corners[1][0] == corners[2][0]


def test_bars_are_as_high_as_their_numbers():
    drawn = parsed(plot([Bars("a", [(0, 1, 10), (1, 2, 20), (2, 3, 0)])]))
    heights = [float(each.get("height")) for each in drawn.iter(SVG + "rect") if "bar" in each.get("class")]
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.2)
    assert heights[2] == 0


def test_everything_is_inside_the_picture():
    lines = [Line(f"series number {number}", [(x, x * number) for x in range(20)], marks=True) for number in range(6)]
    drawn = parsed(
        plot(lines, rules=[Rule("limit", y=40.0), Rule("end", x=19.0)], callouts=[Callout("knee", (19, 95))])
    )
    for each in drawn.iter():
        for name, most in (("x", WIDTH), ("cx", WIDTH), ("x2", WIDTH), ("y", HEIGHT), ("cy", HEIGHT), ("y2", HEIGHT)):
            if each.get(name):
                assert 0 <= float(each.get(name)) <= most
    texts = ["".join(each.itertext()) for each in drawn.iter(SVG + "text")]
    assert {f"series number {number}" for number in range(6)} | {"limit", "end", "knee", "Name", "x", "y"} <= set(texts)


def test_series_differ_without_colour():
    drawn = parsed(plot([Line(str(number), [(0, 0), (1, number)], marks=True) for number in range(6)]))
    paths = list(drawn.iter(SVG + "path"))
    assert len({each.get("stroke-dasharray") for each in paths}) == 6


def test_labels_of_one_point_share_it():
    drawn = parsed(
        plot([Line("a", [(0, 0), (5, 5), (9, 3)])], callouts=[Callout("knee", (5, 5)), Callout("best", (5, 5))])
    )
    assert "knee · best" in ["".join(each.itertext()) for each in drawn.iter(SVG + "text")]


@settings(max_examples=40, deadline=None)
@given(name=st.text(max_size=60), says=st.text(max_size=60))
def test_any_text_is_escaped(name, says):
    drawn = parsed(Plot(name, says, Axis(name), Axis(says), [Line(name, [(0, 1)])]), alone=True)
    for each in drawn.iter():
        assert each.tag.removeprefix(SVG) in {"svg", "title", "desc", "style", "rect", "text", "line", "circle"}


def test_who_cannot_see_it_is_told():
    drawn = parsed(plot([Line("a", [(0, 1)])]))
    assert drawn.get("role") == "img"
    named = {each.get("id"): each.text for each in drawn if each.get("id")}
    assert [named[each] for each in drawn.get("aria-labelledby").split()] == ["Name", "Says."]


def test_a_plot_without_points_is_a_plot():
    assert parsed(plot([Line("a", [])])).get("viewBox") == f"0 0 {WIDTH} {HEIGHT}"


@settings(max_examples=40, deadline=None)
@given(st.lists(finite, min_size=1, max_size=50))
def test_the_distribution_function_reaches_a_hundred_at_the_largest(values):
    points = cumulative(values)
    assert points[0] == (min(values), 0.0)
    assert points[-1] == (max(values), 100.0)
    for value, percent in points[1:]:
        assert sum(each < value for each in values) < percent / 100 * len(values) + 1e-9
        assert sum(each <= value for each in values) >= percent / 100 * len(values) - 1e-9


def test_thinning_keeps_the_ends():
    points = [(float(x), 0.0) for x in range(10_000)]
    kept = thinned(points, 100)
    assert (len(kept), kept[0], kept[-1]) == (100, points[0], points[-1])
    assert thinned(points[:100], 100) == points[:100]
