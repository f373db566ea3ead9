"""Figures of a point from records made by hand, and the knee and operating point of several."""

import numpy as np
import pytest
from tests.unit.loadtest.records import changed, measured, point, record

from freehold.loadtest.knee import knee, operating_point
from freehold.loadtest.results import Distribution, Finding, Goodput, Load, PointResult
from freehold.loadtest.summary import Wanted, summarize
from freehold.loadtest.throughput import peak_requests, peak_tokens_per_s


def test_counts_and_rates() -> None:
    found = point(record(0.0), record(0.0, num_cached=3), record(1.84, error="timeout", ended_s=2.0))
    assert (found.completed, found.failed) == (2, 1)
    assert (found.total_input_tokens, found.total_output_tokens, found.total_cached_tokens) == (20, 8, 3)
    assert found.duration == 2.0
    assert (found.request_throughput, found.output_throughput, found.total_token_throughput) == (1, 4, 14)
    assert found.error_counts == {"timeout": 1}


def test_latencies_leave_failed_requests_out_and_count_from_send_and_from_the_intended_start() -> None:
    found = point(record(1.0, intended_s=0.5), record(2.0, intended_s=2.0), record(0.0, error="dropped", ended_s=9.0))
    assert found.latencies["ttft"].mean == pytest.approx(100)
    assert found.latencies["e2el"].mean == pytest.approx(160)
    assert found.latencies["tpot"].mean == pytest.approx(20)
    assert (found.latencies["itl"].num, found.latencies["itl"].mean) == (6, pytest.approx(20))
    assert found.from_intended["ttft"].mean == pytest.approx(350)
    assert found.from_intended["e2el"].mean == pytest.approx(410)
    assert found.client_queue is not None
    assert found.client_queue.mean == pytest.approx(250)


def test_one_token_has_no_tpot_and_a_whole_answer_only_an_end() -> None:
    found = point(record(0.0, gaps_s=[]), record(0.0, first_s=None, first_output_s=None, gaps_s=[]))
    assert "tpot" not in found.latencies
    assert found.latencies["ttft"].num == 1
    assert found.latencies["e2el"].num == 2


def test_repeats_are_pooled() -> None:
    repeats = [measured(*(record(at, gaps_s=[gap]) for at in range(5))) for gap in (0.1, 0.2, 0.3)]
    found = summarize(repeats, Wanted())
    assert found.completed == 15
    assert found.duration == pytest.approx(sum(each.duration_s for each in repeats))
    assert [each.median_ms["tpot"] for each in found.repeats] == pytest.approx([100, 200, 300])
    pooled = [100.0] * 5 + [200.0] * 5 + [300.0] * 5
    assert found.latencies["tpot"].percentiles["90"] == pytest.approx(np.percentile(pooled, 90))
    low, high = found.intervals["mean_tpot_ms"]
    assert low < 150
    assert high > 250


def test_gaps_are_as_sure_as_their_requests_are_many() -> None:
    """Answers are slow or fast from beginning to end: twenty of them say what twenty gaps would."""
    short, long = (
        point(*(record(at, gaps_s=[0.01 if at % 2 else 0.03] * num) for at in range(20))) for num in (1, 100)
    )
    for key in ("mean_itl_ms", "p99_itl_ms", "median_itl_ms"):
        assert long.intervals[key] == pytest.approx(short.intervals[key], rel=1e-3)
    low, high = long.intervals["mean_itl_ms"]
    assert low < 17
    assert high > 23
    assert "mean_itl_ms" not in point(record(0.0)).intervals, "one request can't tell"


def test_percentiles_on_too_few_requests_are_named() -> None:
    few = point(*(record(at) for at in range(99)))
    assert {"p95_ttft_ms", "p99_ttft_ms", "p90_ttft_ms", "p99_itl_ms"} <= set(few.too_few)
    assert "p50_ttft_ms" not in few.too_few
    assert "p95_itl_ms" not in few.too_few, "297 gaps are enough"
    assert "p99_ttft_ms" not in point(*(record(at / 100) for at in range(1000))).too_few


def test_peaks() -> None:
    records = [record(0.0), record(0.05), record(0.5), record(0.16 + 0.1, error="dropped", ended_s=0.4)]
    assert peak_requests(records) == 2
    assert peak_requests([record(0.0), record(0.16)]) == 1, "one ends as the other starts"
    # Chunks of the first answer at 0.1 to 0.16 s, of the second a second later, three tokens in each.
    assert peak_tokens_per_s([record(0.0, num_output=12), record(1.0)]) == 12


def closed(concurrency: int, throughput: float, ttft_p95: float, **fields: object) -> PointResult:
    ttft = Distribution(10, 1.0, 1.0, 0.0, {"50": 1.0, "95": ttft_p95, "99": ttft_p95})
    base = point(record(0.0), load=Load(kind="closed", concurrency=concurrency))
    return changed(base, output_throughput=throughput, latencies={"ttft": ttft}, invalid=[], **fields)


SWEEP = [(1, 100.0, 10.0), (8, 800.0, 12.0), (32, 1600.0, 30.0), (64, 1700.0, 60.0), (128, 1710.0, 200.0)]


def test_the_knee_is_where_throughput_stops_and_ttft_has_doubled() -> None:
    # Gains for each further request: 100, 33, 3.1, 0.2: below a tenth of the first from 64 on.
    assert knee([closed(*each) for each in SWEEP]) == 3
    assert knee([closed(*each) for each in reversed(SWEEP)]) == 1, "the order of the points doesn't matter"
    assert knee([closed(*each) for each in SWEEP[:3]]) is None
    flat_latency = [closed(concurrency, throughput, 10.0) for concurrency, throughput, _ in SWEEP]
    assert knee(flat_latency) is None
    assert knee([closed(*each) for each in SWEEP[:2]]) is None
    assert knee([]) is None


def good(requests_per_s: float) -> Goodput:
    return Goodput({"ttft": 1.0}, int(requests_per_s * 10), 0.5, requests_per_s, {})


def test_the_operating_point_has_the_most_goodput_of_the_valid_points() -> None:
    points = [closed(*each, goodput=good(rate)) for each, rate in zip(SWEEP, (1.0, 5.0, 9.0, 3.0, 0.0), strict=True)]
    assert operating_point(points) == 2
    points[2] = changed(points[2], invalid=[Finding("client_lag", "late")])
    assert operating_point(points) == 1
    assert operating_point([closed(*each) for each in SWEEP]) is None
    assert operating_point([closed(*SWEEP[0], goodput=good(0.0))]) is None
