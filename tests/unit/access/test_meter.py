"""What a key may use: taken when a request comes, settled when it has ended, never exceeded."""

from typing import Any

import pytest
from clock import Time
from hypothesis import given
from hypothesis import strategies as st

from freehold.access.keys import Key, KeyId, KeyLimits
from freehold.access.meter import Meter, Visit, duration
from freehold.errors import LimitError, RequestError


def meter(time: Time, spent: dict[str, int] | None = None, **limits: Any) -> Meter:
    key = Key(key_id=KeyId("abc"), name="abc", digest=b"", limits=KeyLimits(**limits))
    return Meter(key, spent or {}, time.clocks)


def refused(action: Any, *arguments: Any) -> tuple[str, float | None]:
    with pytest.raises(LimitError) as caught:
        action(*arguments)
    return caught.value.code, caught.value.retry_after_s


def test_requests_a_minute() -> None:
    time = Time()
    limited = meter(time, requests_per_minute=2)
    for _ in range(2):
        with limited.enter():
            pass
        time.passes(10)
    code, wait_s = refused(limited.enter)
    assert code == "rate_limit_exceeded"
    assert wait_s == pytest.approx(40.1, abs=0.2)
    assert limited.headers()["x-ratelimit-remaining-requests"] == "0"
    time.passes(wait_s + 0.01)
    with limited.enter():
        assert limited.headers()["x-ratelimit-remaining-requests"] == "0"


def test_requests_at_once() -> None:
    limited = meter(Time(), concurrent_requests=2)
    with limited.enter():
        with limited.enter():
            assert refused(limited.enter) == ("rate_limit_exceeded", None)
        with limited.enter():
            pass
    assert limited.num_running == 0


def test_tokens_are_reserved_and_settled() -> None:
    time = Time()
    limited = meter(time, tokens_per_minute=100)
    first, second = limited.enter(), limited.enter()
    first.reserve(80)
    assert refused(second.reserve, 30)[0] == "rate_limit_exceeded"
    first.settle(10)
    first.settle(10)
    second.reserve(90)
    assert limited.headers()["x-ratelimit-remaining-tokens"] == "0"
    with pytest.raises(RequestError) as caught:
        limited.enter().reserve(101)
    assert caught.value.param == "max_tokens"
    time.passes(61)
    second.settle(0)  # too late for the window, which has let go of it
    assert limited.headers()["x-ratelimit-remaining-tokens"] == "100"


@pytest.mark.parametrize(
    ("limits", "wait_s"), [({"tokens_per_day": 100}, 12 * 3600), ({"tokens_per_month": 100}, 12 * 3600)]
)
def test_budgets_begin_anew_with_the_day_and_the_month(limits: dict[str, int], wait_s: float) -> None:
    time = Time()  # noon of a month's last day
    limited = meter(time, {"2026-11-30": 30, "2026-10-31": 10_000}, **limits)
    limited.enter().reserve(70)
    assert refused(limited.enter().reserve, 1) == ("insufficient_quota", wait_s)
    time.passes(wait_s - 1)
    assert refused(limited.enter().reserve, 1) == ("insufficient_quota", 1)
    time.passes(1)
    limited.enter().reserve(100)


def test_a_request_counts_for_the_day_it_came_on() -> None:
    time = Time()
    limited = meter(time, tokens_per_day=100)
    late = limited.enter()
    late.reserve(100)
    time.passes(12 * 3600)
    early = limited.enter()
    early.reserve(100)
    late.settle(40)
    assert (limited.spent("2026-11-30"), limited.spent("2026-12-01")) == (40, 100)


def test_a_clock_that_is_set_back_gives_no_budget_twice() -> None:
    time = Time()
    limited = meter(time, tokens_per_day=100)
    limited.enter().reserve(100)
    time.passes(24 * 3600)
    limited.enter().reserve(100)
    time.wall_s -= 24 * 3600
    assert refused(limited.enter().reserve, 1)[0] == "insufficient_quota"


def test_rates_dont_heed_the_time_of_day() -> None:
    time = Time()
    limited = meter(time, requests_per_minute=1)
    with limited.enter():
        pass
    time.wall_s += 10**6
    assert refused(limited.enter)[0] == "rate_limit_exceeded"


steps = st.lists(
    st.tuples(st.floats(0, 30), st.sampled_from(["come", "settle", "leave"]), st.integers(1, 60), st.integers(0, 60)),
    max_size=120,
)


@given(steps, st.integers(1, 5), st.integers(1, 5), st.integers(20, 100))
def test_no_limit_is_ever_exceeded(
    steps: list[tuple[float, str, int, int]], most_requests: int, most_at_once: int, most_tokens: int
) -> None:
    """Whatever comes, is settled and leaves in whatever order; also, all is free in the end."""
    time = Time()
    limited = meter(
        time, requests_per_minute=most_requests, concurrent_requests=most_at_once, tokens_per_minute=most_tokens,
        tokens_per_day=4 * most_tokens,
    )  # fmt: skip
    inside: list[tuple[Visit, float]] = []
    came_s: list[float] = []
    used: list[list[Any]] = []
    counts: dict[Visit, list[Any]] = {}
    for pause_s, step, amount, real in steps:
        time.passes(pause_s)
        if step == "come":
            try:
                visit = limited.enter()
            except LimitError:
                continue
            came_s.append(time.monotonic_s)
            inside.append((visit, time.monotonic_s))
            try:
                visit.reserve(amount)
            except (LimitError, RequestError):
                continue
            counts[visit] = [time.monotonic_s, amount, visit.day]
            used.append(counts[visit])
        elif inside:
            visit, _ = inside[real % len(inside)]
            if visit in counts:
                counts[visit][1] = min(real, counts[visit][1])
                visit.settle(real)
            if step == "leave":
                inside = [other for other in inside if other[0] is not visit]
                visit.__exit__(None, None, None)
        assert len(inside) == limited.num_running <= most_at_once
    for begin_s in came_s:
        assert sum(begin_s <= at_s < begin_s + 60 for at_s in came_s) <= most_requests
    for begin_s, _, _ in used:
        assert sum(amount for at_s, amount, _ in used if begin_s <= at_s < begin_s + 60) <= most_tokens
    for day in {day for _, _, day in used}:
        total = sum(amount for _, amount, on in used if on == day)
        assert total == limited.spent(day) <= 4 * most_tokens


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.12, "200ms"), (1, "1s"), (7.5, "7.5s"), (60, "1m0s"), (59.95, "1m0s"), (90.3, "1m30.3s")],
)
def test_durations_read_as_in_openais_headers(seconds: float, text: str) -> None:
    assert duration(seconds) == text
