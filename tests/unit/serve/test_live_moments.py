"""The moments that the diagnosis is of: numbers that were so together."""

from typing import Any

import pytest
from tests.unit.observe.test_history import moment, state

from freehold.observe.state import EngineState, Waiting
from freehold.serve.live.moments import since_start, telling

QUIET, BUSY, FULL = (0, 0), (4, 0), (64, 6)


def states(*loads: tuple[int, int]) -> list[EngineState]:
    """Those with so many that run and that wait for a row."""
    return [
        state(float(at), num_running=running, waiting=Waiting(rows=rows)) for at, (running, rows) in enumerate(loads)
    ]


@pytest.mark.parametrize(
    ("loads", "counting"),
    [
        ([QUIET] * 4 + [FULL], [FULL]),  # a burst is told at once as it is
        ([QUIET] * 3 + [FULL] * 2, [FULL] * 2),
        ([BUSY] * 4 + [(64, 1)], [BUSY] * 4 + [(64, 1)]),  # somebody waits for a moment at any time
        ([FULL, BUSY, FULL, BUSY, FULL], [FULL] * 3),
        ([FULL] * 3 + [BUSY] * 2, [BUSY] * 2),  # over
        ([FULL] * 3 + [QUIET] * 2, [QUIET] * 2),
        ([QUIET] * 5, [QUIET] * 5),
        ([BUSY] * 3 + [QUIET] * 2, [BUSY] * 3),  # they come and go
        ([QUIET] * 4 + [(1, 0)], [(1, 0)]),  # not idle while one runs
        ([], []),
    ],
)
def test_moments_that_count(loads: list[Any], counting: list[Any]) -> None:
    found = [(each.num_running, each.waiting.rows) for each in telling(states(*loads))]
    assert found == counting


def test_an_earlier_engines_moments_do_not_count() -> None:
    moments = [moment(float(at), num_engine_starts=starts) for at, starts in enumerate([1, 1, 2, 2, 2])]
    assert [each.at_s for each in since_start(moments, 2)] == [2.0, 3.0, 4.0]
    assert since_start(moments, 3) == []
