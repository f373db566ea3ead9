"""Two runs compared: against values worked out by hand, and on runs whose difference is known."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from made_up_results import facts, point, run
from test_report import Page

from freehold.loadtest.comparison import compare, of_pairs, of_repeats, of_runs, pair
from freehold.loadtest.report.comparison_page import comparison_page
from freehold.loadtest.report.comparison_text import comparison_text
from freehold.loadtest.results import Finding, RepeatFigures


def repeat(seed, output):
    return RepeatFigures(seed, 1.0, 10, 0, output / 20, output, {})


def test_pairs_that_differ_by_a_constant_leave_no_doubt():
    pairs = np.asarray([(10.0, 12.0), (20.0, 22.0), (30.0, 32.0), (40.0, 42.0)])
    found = of_pairs("TTFT, mean", [pairs])
    assert (found.a, found.b, found.difference, found.num) == (25.0, 27.0, 2.0, 4)
    assert found.interval == (2.0, 2.0)
    assert found.ratio == pytest.approx(1.08)
    assert found.detectable == 0.0
    assert found.verdict == "worse"


def test_the_detectable_change_of_pairs_by_hand():
    # Differences 1, 2, 3, 4, 5: their standard deviation is sqrt(2.5), of their mean sqrt(0.5).
    pairs = np.asarray([(100.0, 101.0), (100.0, 102.0), (100.0, 103.0), (100.0, 104.0), (100.0, 105.0)])
    found = of_pairs("TTFT, mean", [pairs])
    assert found.difference == pytest.approx(3.0)
    assert found.detectable == pytest.approx((1.959964 + 0.841621) * math.sqrt(0.5) / 100)


def test_intervals_of_pairs_are_those_of_the_normal_distribution_where_it_holds():
    draw = np.random.default_rng(1)
    a = draw.normal(500, 200, 4000)  # requests differ much, their differences little
    gains = draw.normal(-3, 20, 4000)
    found = of_pairs("TTFT, mean", [np.stack([a, a + gains], axis=1)])
    error = float(gains.std(ddof=1)) / math.sqrt(4000)
    assert found.interval == pytest.approx((gains.mean() - 1.96 * error, gains.mean() + 1.96 * error), abs=0.1)
    assert found.verdict == "better"
    apart = of_runs("TTFT, mean", a, a + gains)
    assert apart.verdict == "unclear"
    assert apart.detectable > 5 * found.detectable


def test_a_percentile_of_pairs():
    a = np.arange(1.0, 2001.0)
    found = of_pairs("TTFT, p95", [np.stack([a, a * 1.1], axis=1)], 95)
    assert found.a == pytest.approx(np.percentile(a, 95))
    assert found.ratio == pytest.approx(1.1)
    assert found.ratio_interval == pytest.approx((1.1, 1.1))


def test_repeats_that_differ_widen_the_interval_of_pairs():
    draw = np.random.default_rng(2)
    pairs = [np.stack([each := draw.normal(100, 1, 200), each + shift], axis=1) for shift in (-9.0, 1.0, 8.0)]
    assert of_pairs("TTFT, mean", pairs).verdict == "unclear"
    assert of_pairs("TTFT, mean", [np.concatenate(pairs)]).interval[0] > -2.0


def test_a_change_that_would_have_shown_is_no_less_than_what_repeats_hide():
    draw = np.random.default_rng(2)
    pairs = [np.stack([each := draw.normal(100, 1, 200), each + shift], axis=1) for shift in (-9.0, 1.0, 8.0)]
    found = of_pairs("TTFT, mean", pairs)
    assert found.detectable > (found.interval[1] - found.interval[0]) / 2 / found.a


def test_runs_without_any_answer_can_be_compared():
    assert of_repeats("output throughput", "tokens/s", [0.0, 0.0], [0.0, 0.0]).verdict == "unclear"
    assert of_runs("TTFT, mean", np.zeros(9), np.zeros(9)).verdict == "unclear"


def test_answers_that_were_not_streamed_have_no_ttft():
    a = run((8,), num=60)
    bare = {"e2el": a.points[0].latencies["e2el"]}
    b = replace(a, points=(msgspec.structs.replace(a.points[0], latencies=bare),))
    assert {each.name for each in compare(a, b).points[0].differences if each.unit == "ms"} == {
        "E2EL, mean",
        "E2EL, p50",
    }


def test_runs_apart_by_hand():
    # Means 10 and 13, variances 4 and 9 of four values each: the error is sqrt(1 + 9/4).
    a, b = np.asarray([8.0, 12.0, 8.0, 12.0]), np.asarray([10.0, 16.0, 10.0, 16.0])
    found = of_runs("E2EL, mean", a, b)
    error = math.sqrt(a.var(ddof=1) / 4 + b.var(ddof=1) / 4)
    assert error == pytest.approx(math.sqrt(16 / 3 / 4 + 12 / 4))
    assert found.interval == pytest.approx((3 - 1.959964 * error, 3 + 1.959964 * error))
    assert found.detectable == pytest.approx(2.801585 * error / 10)
    spread = 1.959964 * math.sqrt(16 / 3 / 4 / 100 + 3 / 169)
    assert found.ratio_interval == pytest.approx((1.3 * math.exp(-spread), 1.3 * math.exp(spread)))
    assert found.verdict == "unclear"


def test_repeats_by_hand():
    # Gains 4, 6, 8: mean 6, standard error 2 / sqrt(3); Student's t with two degrees of freedom is 4.303.
    found = of_repeats("output throughput", "tokens/s", [100.0, 100.0, 100.0], [104.0, 106.0, 108.0])
    reach = 4.303 * 2 / math.sqrt(3)
    assert found.interval == pytest.approx((6 - reach, 6 + reach))
    assert found.ratio_interval == pytest.approx((1.06 - reach / 100, 1.06 + reach / 100))
    assert found.verdict == "better"
    assert found.detectable == pytest.approx((reach + 0.841621 * 2 / math.sqrt(3)) / 100)


def test_one_repeat_says_nothing_of_throughput():
    found = of_repeats("output throughput", "tokens/s", [100.0], [200.0])
    assert (found.interval, found.detectable, found.verdict) == (None, None, "unclear")


def test_equal_requests_are_paired_whatever_order_they_ended_in():
    a, b = point(4, num=40).detail, point(4, num=40, slower=2.0).detail
    order = list(range(len(b.errors)))[::-1]
    shuffled = {name: [getattr(b, name)[index] for index in order] for name in b.__struct_fields__}
    found = pair(a, type(b)(**shuffled))
    assert found.ttft[:, 1] == pytest.approx(2 * found.ttft[:, 0])
    assert found.tpot[:, 1] == pytest.approx(2 * found.tpot[:, 0])


def test_failed_requests_and_those_of_one_run_alone_are_no_pairs():
    a, b = point(4, num=60).detail, point(4, num=30).detail
    assert a.errors[49]
    b.errors[3] = "connection reset"
    assert len(pair(a, b).ttft) == 29


def test_answers_of_one_token_have_no_tpot():
    a, b = point(4, num=40).detail, point(4, num=40).detail
    a.output_lens[0] = 1
    found = pair(a, b)
    assert len(found.grouped("ttft")[0]) == 40
    assert len(found.grouped("tpot")[0]) == 39


def test_a_slower_run_is_called_worse_and_a_faster_one_better():
    a, b = run((1, 8), num=100), run((1, 8), num=100, slower=1.03)
    for first, second, verdict in ((a, b, "worse"), (b, a, "better")):
        for each in compare(first, second).points:
            latencies = [difference for difference in each.differences if difference.unit == "ms"]
            assert {difference.verdict for difference in latencies} == {verdict}
            assert all(difference.basis == "requests" for difference in latencies)


def with_hit_rate(found, hit_rate):
    return replace(found, points=tuple(msgspec.structs.replace(each, hit_rate=hit_rate) for each in found.points))


def kinds(found):
    return {each.verdict for point in found.points for each in point.differences if each.unit == "ms"}


def test_what_a_fuller_cache_explains_is_neither_better_nor_worse():
    cold, warm = with_hit_rate(run((8,), num=100), 0.0), with_hit_rate(run((8,), num=100, slower=0.2), 0.98)
    for first, second, rates in ((cold, warm, "0% of A's prompts cached and 98%"), (warm, cold, "98% of A's")):
        found = compare(first, second)
        assert kinds(found) == {"cached"}
        assert {each.verdict for each in found.points[0].differences if each.interval is None} == {"cached"}
        text, page = comparison_text(found), Page(comparison_page(found)).text
        assert f"WARNING: 8 at a time: the server had {rates}" in text
        assert "--warm-cache" in page
        assert not any(f"B is {word}" in shown for word in ("better", "worse") for shown in (text, page))


@pytest.mark.parametrize(("a", "b"), [(0.0, 0.04), (None, 0.98), (0.98, 0.0)])
def test_what_caches_do_not_explain_is_still_better(a, b):
    slow, fast = with_hit_rate(run((8,), num=100), a), with_hit_rate(run((8,), num=100, slower=0.5), b)
    found = compare(slow, fast)
    assert kinds(found) == {"better"}
    assert len(found.warnings) == (a == 0.98)


ASKED = {"dataset": {"name": "random", "random_input_len": 256, "path": "/a/file"}, "backend": "openai", "seed": 1,
         "ignore_eos": True, "num_prompts": 100, "fields": {}}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dataset": {**ASKED["dataset"], "random_input_len": 64}}, "random_input_len 256 and 64"),
        ({"dataset": {**ASKED["dataset"], "path": "/a/other"}}, "path 'file' and 'other'"),
        ({"backend": "openai-chat"}, "endpoint 'openai' and 'openai-chat'"),
        ({"ignore_eos": False}, "--ignore-eos True and False"),
        ({"fields": {"temperature": 0}}, "fields of requests {} and {'temperature': 0}"),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_runs_that_asked_other_work_are_never_called_better_or_worse(changed, said):
    a = replace(run((1, 8), num=100), facts=facts(arguments=ASKED))
    b = replace(run((1, 8), num=100, slower=0.5), facts=facts(arguments={**ASKED, **changed}))
    found = compare(a, b)
    assert {each.verdict for each in found.points[0].differences} == {"incomparable"}
    text, page = comparison_text(found), Page(comparison_page(found)).text
    for shown in (text, page):
        assert f"the runs asked different work ({said})" in shown
        assert not any(f"B is {word}" in shown for word in ("better", "worse"))
    assert text.index("WARNING") < text.index("==")


def test_an_invalid_point_is_neither_better_nor_worse():
    a, b = run((1, 8), num=100), run((1, 8), num=100, slower=0.5)
    b = replace(
        b, points=(msgspec.structs.replace(b.points[0], invalid=[Finding("client_lag", "it was late")]), b.points[1])
    )
    for first, second, name in ((a, b, "second"), (b, a, "first")):
        found = compare(first, second)
        assert {each.verdict for each in found.points[0].differences} == {"incomparable"}
        assert "incomparable" not in {each.verdict for each in found.points[1].differences}
        assert f"WARNING: the {name} run is invalid at 1 at a time" in comparison_text(found)


def test_another_data_set_is_other_work():
    a, b = run((8,), num=100), run((8,), num=100)
    b = replace(b, facts=msgspec.structs.replace(b.facts, dataset="sharegpt"))
    assert f"data set {a.facts.dataset} and sharegpt" in compare(a, b).warnings[0]


@pytest.mark.parametrize(
    "changed", [{"seed": 2}, {"num_prompts": 9}, {"dataset": {**ASKED["dataset"], "path": "/b/file"}}]
)
def test_other_prompts_of_the_same_kind_are_the_same_work(changed):
    a, b = (replace(run((8,), num=100), facts=facts(arguments={**ASKED, **each})) for each in ({}, changed))
    found = compare(a, b)
    assert found.warnings == ()
    assert "incomparable" not in kinds(found)


def test_a_run_against_itself_shows_nothing():
    a = run((1, 8), num=100)
    for each in compare(a, a).points:
        assert {difference.verdict for difference in each.differences} == {"unclear"}
        assert {difference.ratio for difference in each.differences} == {1.0}


def test_runs_with_other_prompts_are_not_paired():
    a, b = run((8,), num=100), run((8,), num=100, seed=5)
    found = compare(a, b)
    assert found.points[0].pairs is None
    assert {each.basis for each in found.points[0].differences if each.unit == "ms"} == {"runs"}
    assert any("asked different prompts" in note for note in found.notes)
    other = replace(a, facts=facts(arguments={"dataset": {"name": "sharegpt"}}))
    assert compare(a, other).points[0].pairs is None


def test_loads_of_one_run_alone_and_invalid_points_are_told():
    a, b = run((1, 8)), run((8, 16))
    b = replace(b, points=(b.points[0], b.points[1]))
    notes = "\n".join(compare(a, b).notes)
    assert "1 at a time: only the first run has it" in notes
    assert "16 at a time: only the second run has it" in notes
    assert "With one repeat" in notes
    three = [repeat(seed, 100.0 + seed) for seed in range(3)]
    better = tuple(msgspec.structs.replace(each, repeats=three) for each in a.points)
    assert "With one repeat" not in "\n".join(compare(replace(a, points=better), replace(a, points=better)).notes)


def test_text_and_page_say_the_same_as_the_comparison():
    a, b = run((1, 8), num=100), run((1, 8), num=100, slower=1.2)
    found = compare(a, b)
    text, page = comparison_text(found), Page(comparison_page(found))
    difference = found.points[0].differences[0]
    assert f"TTFT, mean {difference.ratio - 1:+.1%}" in text
    assert f"{difference.a:.2f}" in text
    rows = [row for row in page.table("Differences") if row[0] == "TTFT, mean (ms)"]
    last = found.points[1].differences[0]
    assert rows[-1][1:4] == [f"{last.a:.2f}", f"{last.b:.2f}", f"{last.difference:.2f}"]
    assert "B is worse: TTFT, mean +20.0%" in page.text
    assert len(page.ids) == len(set(page.ids))


def test_nothing_in_common_is_said():
    page = Page(comparison_page(compare(run((1,)), run((2,)))))
    assert "no load in common" in page.text
