"""When requests of an open loop are to start."""

import numpy as np
import pytest

from freehold.errors import ConfigError
from freehold.loadtest.arrivals import start_times
from freehold.loadtest.loads import LoadFlags, read_loads
from freehold.loadtest.results import Load


def opened(**fields: object) -> Load:
    return Load(kind="open", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0, "inf"])
def test_the_rate_drawn_is_the_rate_asked(burstiness: float | str) -> None:
    starts = start_times(opened(request_rate=5.0, burstiness=burstiness), 101, 7)
    assert starts[0] == 0
    assert starts[-1] == pytest.approx(20)
    assert np.all(np.diff(starts) >= 0)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_vary_as_a_gamma_distribution_does(burstiness: float) -> None:
    gaps = np.diff(start_times(opened(request_rate=10.0, burstiness=burstiness), 20_001, 3))
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.05)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.sort(np.diff(start_times(opened(request_rate=1.0), 5001, 3)))
    expected = 1 - np.exp(-gaps)
    assert np.abs(expected - (np.arange(5000) + 0.5) / 5000).max() < 1.63 / np.sqrt(5000)  # Kolmogorov, 1 %


def test_constant_gaps() -> None:
    assert start_times(opened(request_rate=4.0, burstiness="inf"), 5, 0) == pytest.approx([0, 0.25, 0.5, 0.75, 1])


def test_all_at_once() -> None:
    assert start_times(opened(request_rate="inf"), 3, 0) == [0, 0, 0]


@pytest.mark.parametrize(
    ("strategy", "rates"), [("linear", [1, 2, 3, 4]), ("exponential", [1, 4 ** (1 / 3), 4 ** (2 / 3), 4])]
)
def test_ramps_go_from_one_rate_to_the_other(strategy: str, rates: list[float]) -> None:
    load = opened(burstiness="inf", ramp_up_strategy=strategy, ramp_up_start_rps=1.0, ramp_up_end_rps=4.0)
    assert np.diff(start_times(load, 5, 0)) == pytest.approx([1 / rate for rate in rates])


@pytest.mark.parametrize("load", [opened(request_rate=2.0), opened(request_rate=2.0, burstiness=0.5)])
def test_a_seed_fixes_the_times(load: Load) -> None:
    assert start_times(load, 50, 1) == start_times(load, 50, 1)
    assert start_times(load, 50, 1) != start_times(load, 50, 2)


def test_one_request_starts_at_once() -> None:
    assert start_times(opened(request_rate=2.0), 1, 0) == [0]


def test_lists_are_points() -> None:
    assert [each.concurrency for each in read_loads(LoadFlags(max_concurrency="1,8"))] == [1, 8]
    open_loop = read_loads(LoadFlags(request_rate="1,2.5,inf", max_concurrency="4", burstiness=0.5))
    assert [(each.kind, each.request_rate, each.max_concurrency, each.burstiness) for each in open_loop] == [
        ("open", 1.0, 4, 0.5), ("open", 2.5, 4, 0.5), ("open", "inf", 4, 0.5),
    ]  # fmt: skip
    (trace,) = read_loads(LoadFlags(trace_times=True, max_concurrency="9"))
    assert (trace.kind, trace.max_concurrency) == ("trace", 9)
    (ramp,) = read_loads(LoadFlags(ramp_up_strategy="linear", ramp_up_start_rps=1, ramp_up_end_rps=3))
    assert (ramp.kind, ramp.ramp_up_start_rps, ramp.ramp_up_end_rps) == ("open", 1, 3)
    assert all(each.kind == "closed" for each in read_loads(LoadFlags()))


@pytest.mark.parametrize(
    "flags",
    [
        {"max_concurrency": "0"},
        {"max_concurrency": "a"},
        {"max_concurrency": "1,2", "request_rate": "3"},
        {"request_rate": "0"},
        {"request_rate": "-1"},
        {"request_rate": "nan"},
        {"request_rate": "1", "burstiness": 0},
        {"request_rate": "1", "trace_times": True},
        {"ramp_up_strategy": "square", "ramp_up_start_rps": 1, "ramp_up_end_rps": 2},
        {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1},
        {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 2, "request_rate": "1"},
        {"ramp_up_end_rps": 2},
        {"max_concurrency": "4", "detect_saturation": True},
    ],
)
def test_flags_that_make_no_load_are_refused(flags: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="--"):
        read_loads(LoadFlags(**flags))  # type: ignore[arg-type]
