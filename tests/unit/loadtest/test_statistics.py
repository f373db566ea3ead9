"""Statistics, against numpy and against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.loadtest.statistics import bootstrap, bootstrap_clusters, distribution, least_requests, slope

latencies = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=200)


@settings(max_examples=50, deadline=None)
@given(values=latencies, percents=st.lists(st.floats(0.1, 99.99), min_size=1, max_size=5, unique=True))
def test_figures_are_numpys(values: list[float], percents: list[float]) -> None:
    found = distribution(values, percents)
    assert found is not None
    array = np.asarray(values) * 1000
    assert found.num == len(values)
    assert (found.mean, found.median, found.std) == pytest.approx((array.mean(), np.median(array), array.std()))
    for percent in percents:
        assert found.percentiles[f"{percent:g}"] == pytest.approx(np.percentile(array, percent))


def test_no_values_give_no_figures() -> None:
    assert distribution([], [50]) is None


@pytest.mark.parametrize(("percent", "least"), [(50, 20), (90, 100), (95, 200), (99, 1000), (99.9, 10_000), (5, 200)])
def test_percentiles_need_ten_values_beyond_them(percent: float, least: int) -> None:
    assert least_requests(percent) == least


def means(resamples: np.ndarray) -> np.ndarray:
    return resamples.mean(axis=1)[None]


def test_the_interval_of_a_mean_is_that_of_theory() -> None:
    values = np.random.default_rng(3).normal(10, 2, 400)
    ((low, high),) = bootstrap([values], means)
    error = values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.25 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.25 * error)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    draw = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        ((low, high),) = bootstrap([draw.exponential(1.0, 100)], means, num_resamples=300)
        covered += low <= 1.0 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_what_differs_between_repeats_widens_the_interval() -> None:
    draw = np.random.default_rng(7)
    alike = [draw.normal(10, 1, 100) for _ in range(4)]
    shifted = [group + shift for group, shift in zip(alike, (-3, -1, 1, 3), strict=True)]
    ((low, high),) = bootstrap(alike, means)
    ((shifted_low, shifted_high),) = bootstrap(shifted, means)
    assert shifted_high - shifted_low > 3 * (high - low)


def test_groups_may_differ_in_size_and_be_empty() -> None:
    ((low, high),) = bootstrap([np.full(10, 2.0), np.empty(0), np.full(3, 2.0)], means)
    assert (low, high) == (2.0, 2.0)


def mean_and_percentiles(resamples: np.ndarray) -> np.ndarray:
    return np.concatenate([means(resamples), np.percentile(resamples, [50, 95], axis=1)])


def test_clusters_of_one_value_are_values() -> None:
    draw = np.random.default_rng(17)
    groups = [draw.exponential(1.0, size) for size in (40, 0, 25)]
    clusters = [[np.asarray([value]) for value in group] for group in groups]
    expected = bootstrap(groups, mean_and_percentiles)
    assert np.allclose(bootstrap_clusters(clusters, [50, 95]), expected, rtol=1e-12)


def test_repeating_what_a_cluster_says_makes_nothing_surer() -> None:
    values = np.random.default_rng(19).exponential(1.0, 60)
    once = bootstrap_clusters([[np.asarray([value]) for value in values]], [50])
    often = bootstrap_clusters([[np.full(50, value) for value in values]], [50])
    assert np.allclose(often, once, rtol=1e-6)
    ((low, high),) = bootstrap([np.repeat(values, 50)], means)
    assert high - low < (often[0][1] - often[0][0]) / 4, "as if each gap were an observation"


def test_intervals_of_clusters_cover_the_truth_as_often_as_they_say() -> None:
    """Answers that are slow or fast, and short or long: of the mean of all gaps, and of their 95th percentile."""
    draw = np.random.default_rng(23)

    def answers(num: int) -> list[np.ndarray]:
        return [draw.exponential(draw.gamma(4.0, 0.25), draw.integers(5, 60)) for _ in range(num)]

    truth = np.concatenate(answers(5_000))
    true = (truth.mean(), np.percentile(truth, 95))
    found = [bootstrap_clusters([answers(30)], [95]) for _ in range(30)]
    for place, value in enumerate(true):
        covered = sum(low <= value <= high for low, high in (each[place] for each in found))
        assert covered >= 24


def test_a_line_has_its_slope() -> None:
    rise, significance = slope([0, 1, 2, 3], [1, 3, 5, 7])
    assert rise == pytest.approx(2)
    assert significance == np.inf


def test_noise_has_no_significant_slope() -> None:
    draw = np.random.default_rng(11)
    times = np.arange(300.0)
    significances = [abs(slope(times, draw.normal(0, 1, 300))[1]) for _ in range(200)]
    assert np.mean(np.asarray(significances) > 3) < 0.02


def test_a_wandering_queue_counts_as_less_than_it_seems() -> None:
    """A queue that comes and goes is correlated from one request to the next."""
    draw = np.random.default_rng(13)
    times = np.arange(300.0)
    false = 0
    for _ in range(200):
        noise = draw.normal(0, 1, 300)
        queue = np.empty(300)
        queue[0] = noise[0]
        for at in range(1, 300):
            queue[at] = 0.9 * queue[at - 1] + noise[at]
        false += abs(slope(times, queue)[1]) > 3
    assert false / 200 < 0.05


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 2.0], [2.0, 2.0, 2.0]])
def test_too_few_points_have_no_slope(times: list[float]) -> None:
    assert slope(times, times) == (0.0, 0.0)
