"""A limit on what happens within any minute: never exceeded, and given back as soon as it may be."""

from hypothesis import given
from hypothesis import strategies as st

from freehold.access.window import SPAN_S, Window

times = st.lists(
    st.tuples(st.floats(0, 40), st.integers(1, 40), st.one_of(st.none(), st.integers(0, 40))), min_size=1, max_size=80
)


@given(times, st.integers(1, 60))
def test_no_minute_holds_more_than_the_limit(events: list[tuple[float, int, int | None]], limit: int) -> None:
    """Amounts are taken whenever the window lets them, and some are lowered at once, as a request that is settled."""
    window, now_s = Window(limit), 0.0
    taken: list[tuple[float, int]] = []
    for pause_s, amount, used in events:
        now_s += pause_s
        if window.wait_s(now_s, amount) == 0:
            tick = window.add(now_s, amount)
            if used is not None and used < amount:
                window.lower(tick, amount - used)
            taken.append((now_s, amount if used is None else min(used, amount)))
        assert window.remaining(now_s) >= 0
    for begin_s, _ in taken:
        assert sum(amount for at_s, amount in taken if begin_s <= at_s < begin_s + SPAN_S) <= limit


@given(times, st.integers(1, 40), st.integers(1, 40))
def test_the_wait_that_is_told_is_enough_and_not_too_long(
    events: list[tuple[float, int, int | None]], limit: int, wanted: int
) -> None:
    window, now_s = Window(limit), 0.0
    for pause_s, amount, _ in events:
        now_s += pause_s
        if window.wait_s(now_s, amount) == 0:
            window.add(now_s, amount)
    wait_s = window.wait_s(now_s, wanted)
    if wanted > limit:
        assert wait_s is None
        return
    assert wait_s is not None
    assert wait_s <= SPAN_S + 0.1
    if wait_s > 0.11:
        assert window.remaining(now_s + wait_s - 0.11) < wanted
    assert window.remaining(now_s + wait_s + 0.001) >= wanted


@given(times)
def test_it_is_empty_when_it_says_so(events: list[tuple[float, int, int | None]]) -> None:
    window, now_s = Window(1 << 30), 0.0
    for pause_s, amount, _ in events:
        now_s += pause_s
        window.add(now_s, amount)
    empty_in_s = window.empty_in_s(now_s)
    assert 59.9 < empty_in_s <= 60.1
    assert window.remaining(now_s + empty_in_s + 0.001) == window.limit


def test_memory_is_bounded() -> None:
    window = Window(1 << 40)
    for tick in range(100_000):
        window.add(tick / 1000, 1)
    assert len(window._amounts) <= SPAN_S * 10 + 1
