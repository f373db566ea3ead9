"""Lengths follow the distribution that they are said to follow."""

import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.errors import ConfigError
from freehold.loadtest.workloads.lengths import Even, Gamma, LogNormal
from freehold.loadtest.workloads.published import PUBLISHED

NUM = 20_000


def drawn(lengths, num=NUM):
    source = random.Random(5)
    return [lengths.draw(source) for _ in range(num)]


@settings(max_examples=40, deadline=None)
@given(middle=st.integers(1, 5000), ratio=st.floats(0, 0.999), seed=st.integers())
def test_ranged_lengths_stay_within_the_ratio(middle, ratio, seed):
    lengths = Even.around(middle, ratio, "--random-input-len")
    for _ in range(20):
        length = lengths.draw(random.Random(seed))
        assert max(1, int(middle * (1 - ratio))) <= length <= middle * (1 + ratio) + 1


def test_without_a_ratio_all_are_equal():
    assert set(drawn(Even.around(128, 0.0, "--random-input-len"), 100)) == {128}


def test_ranged_lengths_reach_both_ends():
    found = drawn(Even.around(10, 0.5, "--random-input-len"))
    assert set(found) == set(range(5, 16))
    assert statistics.mean(found) == pytest.approx(10, rel=0.01)


def test_a_log_normal_has_its_median_and_spread():
    found = sorted(drawn(LogNormal(median=857, sigma=1.428)))
    assert found[NUM // 2] == pytest.approx(857, rel=0.05)
    assert found[NUM * 9 // 10] == pytest.approx(5342, rel=0.06)  # as published for agents' steps


def test_a_gamma_has_its_mean_and_variance():
    found = drawn(Gamma(shape=1.329, mean=1155))
    assert statistics.mean(found) == pytest.approx(1155, rel=0.03)
    assert statistics.pstdev(found) == pytest.approx(1155 / 1.329**0.5, rel=0.03)


@pytest.mark.parametrize("lengths", [Even(10, 30), LogNormal(20, 1.0), Gamma(2.0, 20.0)])
def test_scaled_lengths_are_so_many_times_as_long(lengths):
    assert statistics.mean(drawn(lengths.scaled(8))) == pytest.approx(8 * statistics.mean(drawn(lengths)), rel=0.05)
    assert min(drawn(lengths.scaled(0.001), 100)) == 1


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"), [("chat", (1020, 1155), (129, 211)), ("code", (1469, 2048), (13, 28))]
)
def test_published_lengths_are_near_the_traces_medians_and_means(name, inputs, outputs):
    for lengths, (median, mean) in ((PUBLISHED[name].input, inputs), (PUBLISHED[name].output, outputs)):
        found = drawn(lengths)
        assert statistics.median(found) == pytest.approx(median, rel=0.25)
        assert statistics.mean(found) == pytest.approx(mean, rel=0.2)


@pytest.mark.parametrize(("middle", "ratio"), [(0, 0.0), (-5, 0.0), (10, 1.0), (10, -0.1), (10, float("nan"))])
def test_lengths_that_cannot_be_are_refused(middle, ratio):
    with pytest.raises(ConfigError, match="--random-"):
        Even.around(middle, ratio, "--random-input-len")
