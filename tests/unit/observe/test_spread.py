"""Percentiles of durations that are counted by size: within the error that is stated, however many there are."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.observe.spread import LONGEST_S, MAX_ERROR, SHORTEST_S, SlidingSpread, Spread

DURATIONS = st.lists(st.floats(SHORTEST_S, LONGEST_S), min_size=1, max_size=50)


def spread_of(durations: list[float]) -> Spread:
    spread = Spread()
    for seconds in durations:
        spread.add(seconds)
    return spread


@settings(max_examples=100)
@given(DURATIONS, st.floats(0, 1))
def test_quantiles_are_within_the_stated_error(durations: list[float], share: float) -> None:
    """Of the duration whose rank is asked for; SHORTEST_S stands for all that are shorter."""
    exact = sorted(durations)[max(1, math.ceil(share * len(durations))) - 1]
    found = spread_of(durations).quantile(share)
    assert found is not None
    assert abs(found / exact - 1) <= MAX_ERROR + 1e-9


@settings(max_examples=50)
@given(DURATIONS, DURATIONS)
def test_taking_out_undoes_merging(one: list[float], other: list[float]) -> None:
    spread, rest = spread_of(one), spread_of(other)
    before = [spread.quantile(share / 10) for share in range(11)]
    spread.merge(rest)
    assert spread.num == len(one) + len(other)
    spread.take_out(rest)
    assert [spread.quantile(share / 10) for share in range(11)] == before
    assert spread.num == len(one)


def test_what_was_never_measured_has_no_percentile() -> None:
    assert Spread().quantile(0.5) is None
    assert Spread().mean_s is None


@pytest.mark.parametrize(("window_s", "num_slots"), [(60, 60), (300, 60), (10, 10)])
def test_a_window_holds_its_seconds_alone(window_s: int, num_slots: int) -> None:
    """Whatever came before: to a slot's length."""
    slot_s = window_s // num_slots
    sliding = SlidingSpread(window_s, num_slots)
    pushed: list[int] = []
    random_numbers = random.Random(1)
    for _ in range(3 * window_s + 7):
        pushed.append(random_numbers.randrange(3))
        sliding.push(spread_of([0.5] * pushed[-1]))
        inside = [sum(pushed[-span:]) for span in range(window_s - slot_s + 1, window_s + 1)]
        assert sliding.total.num in inside


def test_room_is_bounded_whatever_comes() -> None:
    sliding = SlidingSpread(60)
    random_numbers = random.Random(2)
    for _ in range(500):
        sliding.push(spread_of([10 ** random_numbers.uniform(-9, 9) for _ in range(20)]))
    assert len(sliding.total._buckets) <= 1 + math.log(LONGEST_S / SHORTEST_S) / math.log(1.05) + 1
    assert len(sliding._slots) == 60
