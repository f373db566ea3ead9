"""Runs that can't be trusted are flagged, and sound ones aren't."""

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.loadtest.records import CLOSED, measured, record

from freehold.loadtest.measurement import Measurement
from freehold.loadtest.results import Load, PointResult, Stopped
from freehold.loadtest.saturation import sign_of_saturation
from freehold.loadtest.server_metrics import Reading
from freehold.loadtest.summary import Wanted, summarize

RATE = Load(kind="open", request_rate=10.0)


def codes(*measurements: Measurement, **wanted: Any) -> tuple[set[str], set[str]]:
    """What is invalid and what is warned of."""
    result: PointResult = summarize(measurements, Wanted(**wanted))
    return {each.code for each in result.invalid}, {each.code for each in result.warnings}


def sound(load: Load = CLOSED, **fields: Any) -> Measurement:
    return measured(*(record(start) for start in np.arange(0, 4, 0.2)), load=load, **fields)


def test_a_sound_run_is_valid_without_a_word() -> None:
    assert codes(sound()) == (set(), set())
    assert codes(sound(RATE)) == (set(), set())


def test_a_late_client_is_told() -> None:
    assert codes(sound(lags_s=[0.0] * 98 + [0.02] * 2))[0] == {"client_lag"}
    assert codes(sound(lags_s=[0.0] * 995 + [0.05] * 5))[0] == set()


def test_requests_that_are_taken_up_late_are_told() -> None:
    late = [record(start, taken_up_s=start + 0.011) for start in np.arange(0, 4, 0.2)]
    assert codes(measured(*late))[0] == {"schedule_delay"}
    assert codes(measured(*late[:9], *(record(start) for start in np.arange(4, 6, 0.2))))[0] == set()


def test_a_rate_that_isnt_reached_is_told() -> None:
    slow = [record(start * 1.05, intended_s=start, taken_up_s=start) for start in np.arange(0, 4, 0.2)]
    assert codes(measured(*slow, load=RATE))[0] == {"rate_not_reached"}
    nearly = [record(start * 1.015, intended_s=start, taken_up_s=start) for start in np.arange(0, 4, 0.2)]
    assert codes(measured(*nearly, load=RATE))[0] == set()


@pytest.mark.parametrize(
    ("num_failed", "invalid", "warned"), [(0, set(), set()), (1, set(), {"failures"}), (3, {"failures"}, set())]
)
def test_failures_are_told(num_failed: int, invalid: set[str], warned: set[str]) -> None:
    good = [record(start) for start in np.arange(0, 40, 0.2)]
    failed = [record(1.0 + start, error="http_500") for start in range(num_failed)]
    assert codes(measured(*good, *failed)) == (invalid, warned)


def test_nothing_that_succeeded_is_told() -> None:
    assert codes(measured(record(0.0, error="connect")))[0] == {"nothing_completed"}


def test_tokens_that_nobody_counted_are_told() -> None:
    unknown = [record(start, num_output=None, source="unknown") for start in np.arange(0, 4, 0.2)]
    assert codes(measured(*unknown))[0] == {"unknown_tokens"}
    tokenized = [record(start, source="tokenizer") for start in np.arange(0, 4, 0.2)]
    assert codes(measured(*tokenized)) == (set(), {"tokenized"})


def test_a_concurrency_that_was_never_reached_is_told() -> None:
    assert codes(sound(Load(kind="closed", concurrency=2)))[0] == {"concurrency_not_reached"}
    together = [record(start) for start in (0.0, 0.0, 0.2, 0.2)]
    assert codes(measured(*together, load=Load(kind="closed", concurrency=2))) == (set(), set())
    assert codes(measured(*together[:3], load=Load(kind="closed", concurrency=2))) == (set(), {"mostly_edges"})


def readings(queries: float, hits: float) -> list[Reading]:
    return [
        Reading(0.0, {"prefix_queries": 1000.0, "prefix_hits": 900.0}, {}),
        Reading(1.0, {"prefix_queries": 1000.0 + queries, "prefix_hits": 900.0 + hits}, {}),
    ]


@pytest.mark.parametrize(("hits", "warned"), [(0, set()), (9, set()), (10, {"prefix_cache_hits"})])
def test_hits_on_distinct_prompts_are_told(hits: float, warned: set[str]) -> None:
    assert codes(sound(readings=readings(1000, hits)))[1] == warned
    assert codes(sound(readings=readings(1000, hits)), expects_hits=True)[1] == set()


def test_a_measurement_that_was_cut_before_is_told() -> None:
    assert codes(sound(), sound(num_cut=1))[1] == {"measured_anew"}


def test_without_metrics_the_usage_tells_of_hits() -> None:
    result = summarize([measured(record(0.0, num_cached=5), record(1.0, num_cached=0))], Wanted())
    assert (result.hit_rate, result.hit_rate_source) == (0.25, "usage")
    assert {each.code for each in result.warnings} == {"prefix_cache_hits"}
    result = summarize([measured(record(0.0, num_cached=5), readings=readings(1000, 3))], Wanted())
    assert (result.hit_rate, result.hit_rate_source) == (0.003, "metrics")
    assert summarize([sound()], Wanted()).hit_rate is None


def test_counts_that_contradict_each_other_are_told() -> None:
    """be-02"""
    told = [record(start, num_ids=4) for start in np.arange(0, 4, 0.2)]
    assert codes(measured(*told)) == (set(), set())
    assert codes(measured(*told, record(5.0, num_ids=3))) == (set(), {"usage_mismatch"})


def test_answers_that_were_cut_are_told() -> None:
    whole = [record(start, asked_output=4, finish_reason="length") for start in np.arange(0, 4, 0.2)]
    assert codes(measured(*whole)) == (set(), set())
    assert codes(measured(*whole, record(5.0, asked_output=9, finish_reason="stop"))) == (set(), set())
    assert codes(measured(*whole, record(5.0, asked_output=9, finish_reason="length"))) == (set(), {"other_length"})


def test_chunks_of_several_tokens_are_told() -> None:
    packed = [record(start, num_output=12) for start in np.arange(0, 4, 0.2)]
    result = summarize([measured(*packed)], Wanted())
    assert result.tokens_per_chunk == 3
    assert {each.code for each in result.warnings} == {"tokens_per_chunk"}


def test_an_interrupted_run_and_turns_that_werent_asked_are_told() -> None:
    assert codes(sound(is_complete=False))[1] == {"interrupted"}
    assert codes(sound(num_unasked=2))[1] == {"unasked_turns"}


def served(rate: float, capacity: float, duration_s: float) -> Measurement:
    """A server that works one request off after the other, with Poisson arrivals."""
    draw = np.random.default_rng(1)
    starts = np.cumsum(draw.exponential(1 / rate, int(rate * duration_s)))
    records, free_s = [], 0.0
    for start in starts:
        free_s = max(free_s, start) + draw.exponential(1 / capacity)
        records.append(record(start, first_s=free_s - 0.001, ended_s=free_s, gaps_s=[0.001]))
    return measured(*records, load=Load(kind="open", request_rate=rate))


@pytest.mark.parametrize(("capacity", "is_saturated"), [(30, False), (12.5, False), (8, True)])
def test_a_queue_that_only_grows_is_told(capacity: float, is_saturated: bool) -> None:
    assert ("over_saturated" in codes(served(10, capacity, 60))[0]) is is_saturated


def test_a_queue_that_hardly_grows_is_none() -> None:
    """However surely: half an hour shows a drift of a few percent, which needn't go on."""
    starts = np.arange(0, 1800, 0.5)
    records = [record(at, first_s=at + 1 + at / 9000, ended_s=at + 4 + at / 9000, gaps_s=[3.0]) for at in starts]
    assert sign_of_saturation(RATE, records, 1800) is None


def refused(status: int, share: float, *, from_s: float = 0.0, until_s: float = 60.0) -> Measurement:
    """Ten requests a second for a minute; of some of them, the server refuses a share at once."""
    draw = np.random.default_rng(1)
    records = []
    for at in np.arange(0, 60, 0.1):
        if from_s <= at < until_s and draw.random() < share:
            records.append(record(at, first_s=None, ended_s=at + 0.01, error=f"http_{status}", status=status))
        else:
            records.append(record(at))
    return measured(*records, load=RATE)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("share", [0.3, 0.85, 1.0])
def test_refusals_that_last_are_told_as_over_saturation(status: int, share: float) -> None:
    """Whoever limits its queue has one that doesn't grow."""
    result = summarize([refused(status, share, from_s=25)], Wanted())
    (finding,) = (each for each in result.invalid if each.code == "over_saturated")
    assert "kept refusing" in finding.text
    assert "in flight and TTFT" not in finding.text


@pytest.mark.parametrize(
    "well",
    [
        refused(429, 0.9, until_s=10),
        refused(429, 0.9, from_s=35, until_s=45),
        refused(429, 0.9, from_s=55),
        refused(429, 0.03),
        refused(500, 0.9),
    ],
    ids=["a burst at first", "a burst", "only at the end", "some", "faults"],
)
def test_refusals_that_pass_and_other_failures_are_no_over_saturation(well: Measurement) -> None:
    assert "over_saturated" not in codes(well)[0]


def test_a_stopped_run_without_any_answer_says_why_it_was_stopped() -> None:
    stopped = Stopped(31.0, 4, 100, "refusals")
    result = summarize([dataclasses.replace(refused(503, 1.0), stopped=stopped)], Wanted())
    assert [each.code for each in result.invalid] == ["nothing_completed", "over_saturated"]
    assert "stopped after 31 s, as the server kept refusing" in result.invalid[1].text


@pytest.mark.parametrize(("capacity", "until_s", "is_saturated"), [(1e9, 32, False), (1e9, 90, False), (1.5, 90, True)])
def test_a_server_that_fills_up_with_long_answers_is_none(capacity: float, until_s: float, is_saturated: bool) -> None:
    """Answers take twenty seconds, so that for twenty seconds more and more are in flight, and slow each other down;
    unless the server takes up fewer requests than come, as well.
    """
    records, free_s = [], 0.0
    for start in np.arange(0, until_s, 0.5):
        free_s = max(free_s + 1 / capacity, start)
        first_s = free_s + 0.1 + min(start, 20) / 100
        records.append(record(start, first_s=first_s, ended_s=first_s + 20, gaps_s=[20.0]))
    assert ("over_saturated" in codes(measured(*records, load=RATE))[0]) is is_saturated


def test_a_short_run_or_a_closed_loop_is_never_called_saturated() -> None:
    assert "over_saturated" not in codes(served(10, 8, 20))[0]
    assert "over_saturated" not in codes(dataclasses.replace(served(10, 8, 60), load=CLOSED))[0]


def test_a_burst_is_never_called_saturated() -> None:
    burst = [record(0.0, first_s=float(at), ended_s=at + 1.0) for at in range(1, 60)]
    assert "over_saturated" not in codes(measured(*burst, load=Load(kind="open", request_rate="inf")))[0]


def test_answers_that_come_whole_tell_as_well() -> None:
    whole = served(10, 8, 60)
    whole.records = [msgspec.structs.replace(each, first_s=None, gaps_s=[]) for each in whole.records]
    assert "over_saturated" in codes(whole)[0]


def test_a_restarted_server_is_told() -> None:
    fallen = [Reading(float(at), {"preemptions": count}, {}) for at, count in enumerate((900.0, 0.0))]
    assert codes(sound(readings=fallen))[1] == {"server_restarted"}
    assert codes(sound(readings=fallen[::-1]))[1] == set()


def test_counts_that_cant_be_are_told() -> None:
    assert codes(measured(record(), record(1.0, num_refused_counts=2)))[1] == {"impossible_usage"}
