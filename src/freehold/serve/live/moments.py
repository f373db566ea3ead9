"""Which of the last moments the diagnosis is of, so that its numbers are ones that were so together.

A mean over a burst's first seconds and the quiet before it tells of a load that never was.
"""

from collections.abc import Sequence

from freehold.observe.diagnosis import FEW
from freehold.observe.history import Moment
from freehold.observe.state import EngineState

NUM_OVER = 2
"""Moments without anybody who waits for a row or blocks, after which that is over."""


def since_start(moments: Sequence[Moment], num_engine_starts: int) -> Sequence[Moment]:
    """Those after the engine's last start. What was so before it binds nobody any more."""
    return [moment for moment in moments if moment.num_engine_starts == num_engine_starts]


def telling(states: Sequence[EngineState]) -> Sequence[EngineState]:
    """Those in which what binds was so.

    Args:
        states: of the last seconds, oldest first.
    """
    if not any(map(_num_held_up, states[-NUM_OVER:])):
        states = [state for state in states if not _num_held_up(state)]
    if states and (_num_inside(states[-1]) or sum(map(_num_inside, states)) >= FEW * len(states)):
        states = [state for state in states if _num_inside(state)]
    if sum(map(_num_held_up, states)) >= FEW * len(states):
        states = [state for state in states if _num_held_up(state)]
    return states


def _num_inside(state: EngineState) -> int:
    return state.num_running + state.waiting.total


def _num_held_up(state: EngineState) -> int:
    """Requests that wait for a row or for blocks."""
    return state.waiting.rows + state.waiting.blocks
