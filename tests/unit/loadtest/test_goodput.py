"""Goodput, by hand."""

import pytest
from tests.unit.loadtest.records import record

from freehold.errors import ConfigError
from freehold.loadtest.goodput import goodput, read_limits


def test_a_good_request_meets_every_limit() -> None:
    records = [
        record(0.0),  # TTFT 100 ms, TPOT 20 ms, end 160 ms
        record(0.0, gaps_s=[0.05, 0.05]),  # TPOT 50 ms
        record(1.0, first_s=1.3, ended_s=1.36),  # TTFT 300 ms
        record(2.0, error="timeout"),
    ]
    found = goodput(records, 4.0, {"ttft": 200, "tpot": 30, "e2el": 500})
    assert found.num_good == 1
    assert found.fraction == 0.25
    assert found.requests_per_s == 0.25
    assert found.missed == {"ttft": 1, "tpot": 1, "e2el": 0}
    assert found.limits_ms == {"ttft": 200, "tpot": 30, "e2el": 500}


def test_a_limit_is_met_by_what_equals_it() -> None:
    exact = record(0.0, first_s=0.125, ended_s=0.25, gaps_s=[0.125])
    assert goodput([exact], 1.0, {"ttft": 125, "tpot": 125, "e2el": 250}).num_good == 1


def test_time_in_the_clients_queue_counts() -> None:
    late = record(1.0, intended_s=0.0)
    assert goodput([late], 1.0, {"ttft": 200}).num_good == 0
    assert goodput([late], 1.0, {"tpot": 200}).num_good == 1


def test_one_token_has_no_time_between_tokens() -> None:
    assert goodput([record(0.0, gaps_s=[])], 1.0, {"tpot": 1}).num_good == 1


@pytest.mark.parametrize("fields", [{"first_s": None}, {"num_output": None, "first_s": None}])
def test_what_is_not_known_meets_no_limit(fields: dict[str, None]) -> None:
    assert goodput([record(0.0, **fields)], 1.0, {"ttft": 1000, "tpot": 1000}).num_good == 0


def test_reasoning_alone_doesnt_meet_a_limit_on_output() -> None:
    thinking = record(0.0, first_output_s=None)
    assert goodput([thinking], 1.0, {"ttft": 1000}).num_good == 1
    assert goodput([thinking], 1.0, {"ttfot": 1000}).num_good == 0


def test_no_requests_are_no_goodput() -> None:
    assert goodput([], 0.0, {"ttft": 1}).fraction == 0.0


def test_limits_are_read_as_vllm_writes_them() -> None:
    assert read_limits(["ttft:200", "tpot:50.5", "e2el:5000"]) == {"ttft": 200, "tpot": 50.5, "e2el": 5000}
    assert read_limits(["ttft:200 e2el:1"]) == {"ttft": 200, "e2el": 1}
    assert read_limits([]) == {}


@pytest.mark.parametrize("text", ["ttft", "ttft:", "ttft:x", "ttft:0", "ttft:-1", "ttft:nan", "itl:5", "tpt:5", ":5"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--goodput"):
        read_limits([text])
