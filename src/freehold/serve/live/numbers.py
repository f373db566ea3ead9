"""What the diagnosis is made from, as this server knows it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from freehold.observe.diagnosis import Numbers
from freehold.observe.history import COARSE_S, Duration, changes
from freehold.observe.state import EngineState
from freehold.serve.service import Service

T = TypeVar("T")
Known = TypeVar("Known", float, None)

RECENT_S = 5
"""Seconds that rates, shares and the diagnosis are of."""
RARE_S = COARSE_S
"""And what happens seldom."""


def numbers_of(service: Service) -> Numbers:
    """Of the last seconds."""
    board = service.board
    moments = board.history.recent(RECENT_S)
    change = changes(moments[0], moments[-1])
    long = board.history.recent(RARE_S)
    rare = changes(long[0], long[-1])
    states = [moment.engine for moment in moments[1:] if moment.engine is not None]
    waiting = [followed.record for followed in board.live.values() if followed.record.first_s is None]
    not_ready = service.not_ready()

    def p90_s(name: Duration) -> float | None:
        return board.history.last_seconds[name].total.quantile(0.9)

    overhead = None if change["plan"] is None else (change["plan"] or 0.0) + (change["apply"] or 0.0)
    span_s = long[-1].at_s - long[0].at_s
    computed = rare["computed"]
    return Numbers(
        num_running=_mean(states, lambda state: state.num_running, service.engine.engine.num_live),
        num_waiting=_mean(states, lambda state: state.waiting.total, 0.0),
        kv_used=_mean(states, lambda state: state.kv.held / max(1, state.kv.num_blocks), 0.0),
        why_not_ready="" if not_ready is None else str(not_ready),
        num_preemptions=(rare["preemptions"] or 0.0) * span_s,
        recomputed=(rare["recomputed"] or 0.0) / computed if computed else None,
        max_num_seqs=service.info.max_num_seqs,
        num_waiting_rows=_mean(states, lambda state: state.waiting.rows, None),
        num_waiting_blocks=_mean(states, lambda state: state.waiting.blocks, None),
        num_waiting_grammars=_mean(states, lambda state: state.waiting.grammar, None),
        num_rejected=(rare["rejected"] or 0.0) * span_s,
        num_preparing=_mean(moments[1:], lambda moment: moment.num_preparing, 0.0),
        num_first_tokens=_mean(states, _num_first_tokens, None),
        num_decoding=_mean(states, lambda state: state.num_running - state.num_prefilling, None),
        longest_prompt=max((record.num_prompt_tokens for record in waiting), default=None),
        step_tokens=service.engine.engine.max_num_batched_tokens,
        ttft_s=p90_s("ttft"),
        tokenize_s=p90_s("tokenize"),
        prefill_s=p90_s("prefill"),
        overhead=overhead,
        idle=change["idle"],
        server_cpu=change["server_cpu"],
        num_slow_clients=_mean(moments[1:], lambda moment: moment.num_slow_clients, 0.0),
    )


def _num_first_tokens(state: EngineState) -> float:
    """Requests whose prompts are computed, or would be if a step held more tokens."""
    return state.num_prefilling + state.waiting.tokens + state.waiting.order


def _mean(items: Sequence[T], of: Callable[[T], float], otherwise: Known) -> float | Known:
    return sum(map(of, items)) / len(items) if items else otherwise
