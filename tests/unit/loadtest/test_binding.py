"""The limit that bound a point, from readings of the server's metrics."""

from typing import Any

import pytest
from tests.unit.loadtest.records import measured, record

from freehold.loadtest.binding import binding_limit
from freehold.loadtest.server_metrics import Reading

IDLE = {"running": 0.0, "waiting": 0.0, "kv_usage": 0.0}


def readings(*during: dict[str, float], **counted: float) -> list[Reading]:
    """Idle before and after, and this meanwhile. Counters rise by `counted`, from 100."""
    before = {**IDLE, **dict.fromkeys(counted, 100.0)}
    after = {**IDLE, **{name: 100 + value for name, value in counted.items()}}
    return [Reading(float(at), values, {}) for at, values in enumerate([before, *during, after])]


BUSY = {"running": 32.0, "waiting": 10.0, "kv_usage": 0.41}


@pytest.mark.parametrize(
    ("during", "counted", "code", "words"),
    [
        (BUSY, {}, "rows", "raise --max-num-seqs"),
        ({**BUSY, "max_num_seqs": 32.0}, {}, "rows", "32 of 32 run"),
        ({**BUSY, "waiting_rows": 0.0, "waiting_blocks": 10.0}, {}, "kv_full", "raise --kv-cache-memory-bytes"),
        ({**BUSY, "kv_usage": 0.99}, {}, "kv_and_rows", "KV"),
        (BUSY, {"preemptions": 4}, "kv_full", "4 times"),
        (BUSY, {"preemptions": 4, "computed": 100, "recomputed": 100}, "kv_thrashing", "50%"),
        ({**BUSY, "waiting": 0.0}, {}, "nothing", "nothing binds"),
        ({**BUSY, "waiting": 0.0}, {"plan_s": 1, "run_s": 8, "apply_s": 1, "idle_s": 0}, "compute", "more cores"),
        ({**BUSY, "waiting": 0.0}, {"prefill_sum_s": 30, "prefill_count": 10}, "prefill", "computing prompts"),
        (IDLE, {}, "idle", "idle"),
    ],
)
def test_the_limit_is_the_live_pages(during: dict[str, float], counted: dict[str, Any], code: str, words: str) -> None:
    slow = record(0.0, first_s=4.0, ended_s=5.0)
    found = binding_limit([measured(slow, readings=readings(during, during, **counted))])
    assert found.code == code
    assert words in found.text


@pytest.mark.parametrize(
    ("during", "code", "words"),
    [
        ({"running": 2.0, "waiting": 0.0}, "no_queue", "don't tell the use"),
        ({"running": 2.0, "waiting": 3.0}, "queue", "3 wait beside 2"),
        ({"generation_tokens": 5.0}, "no_metrics", "how many requests"),
    ],
)
def test_what_metrics_dont_tell_is_said(during: dict[str, float], code: str, words: str) -> None:
    found = binding_limit([measured(record(), readings=[Reading(float(at), during, {}) for at in range(4)])])
    assert found.code == code
    assert words in found.text


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "metrics_refused", "FREEHOLD_API_KEY"),
        (403, "metrics_refused", "lacks the right `metrics`"),
        (404, "no_metrics", "no metrics that are known"),
    ],
)
def test_metrics_that_are_refused_are_told_from_none(status: int, code: str, words: str) -> None:
    found = binding_limit([measured(record(), metrics_refusal=status)])
    assert found.code == code
    assert words in found.text


def test_no_metrics_and_a_measurement_that_is_too_short_are_said() -> None:
    assert binding_limit([measured(record())]).code == "no_metrics"
    assert binding_limit([measured(record(), readings=readings())]).code == "too_short"


def test_repeats_are_one_average() -> None:
    quiet, busy = readings({**BUSY, "waiting": 0.0}), readings(BUSY)
    assert binding_limit([measured(readings=quiet), measured(readings=busy)]).code == "rows"
    assert binding_limit([measured(readings=quiet), measured(readings=quiet)]).code == "nothing"


def test_counts_of_a_restarted_server_are_left_out() -> None:
    rising = readings(BUSY, preemptions=4, computed=100, recomputed=100)
    restarted = readings(BUSY, preemptions=-90, computed=100, recomputed=-90)
    assert binding_limit([measured(readings=rising), measured(readings=restarted)]).code == "kv_thrashing"
    assert binding_limit([measured(readings=restarted)]).code == "rows"
