"""What the diagnosis is made from, as this server knows it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from freehold.observe.diagnosis import Numbers
from freehold.observe.history import Duration, changes
from freehold.serve.service import Service

T = TypeVar("T")

RECENT_S = 5
"""Seconds that rates, shares and the diagnosis are of."""


def numbers_of(service: Service) -> Numbers:
    """Of the last seconds."""
    board = service.board
    moments = board.history.recent(RECENT_S)
    change = changes(moments[0], moments[-1]) if moments else {}
    states = [moment.engine for moment in moments[1:] if moment.engine is not None]
    waiting = [followed.record for followed in board.live.values() if followed.record.first_s is None]
    not_ready = service.not_ready()

    def p90_s(name: Duration) -> float | None:
        return board.history.last_seconds[name].total.quantile(0.9)

    overhead = None if change.get("plan") is None else (change["plan"] or 0.0) + (change["apply"] or 0.0)
    span_s = moments[-1].at_s - moments[0].at_s if len(moments) > 1 else 0.0
    computed = change.get("computed")
    return Numbers(
        why_not_ready="" if not_ready is None else str(not_ready),
        num_running=_mean(states, lambda state: state.num_running, service.engine.engine.num_live),
        num_waiting=_mean(states, lambda state: state.waiting.total, 0.0),
        max_num_seqs=service.info.max_num_seqs,
        kv_used=_mean(states, lambda state: state.kv.held / max(1, state.kv.num_blocks), 0.0),
        num_preemptions=(change.get("preemptions") or 0.0) * span_s,
        num_waiting_rows=_mean(states, lambda state: state.waiting.rows, 0.0) if states else None,
        num_waiting_blocks=_mean(states, lambda state: state.waiting.blocks, 0.0) if states else None,
        num_waiting_grammars=_mean(states, lambda state: state.waiting.grammar, 0.0) if states else None,
        recomputed=(change["recomputed"] or 0.0) / computed if computed else None,
        num_first_tokens=_mean(states, lambda state: state.num_prefilling + state.waiting.order, 0.0)
        if states
        else None,
        longest_prompt=max((record.num_prompt_tokens for record in waiting), default=None),
        step_tokens=service.engine.engine.max_num_batched_tokens,
        num_decoding=_mean(states, lambda state: state.num_running - state.num_prefilling, 0.0) if states else None,
        ttft_s=p90_s("ttft"),
        queue_s=p90_s("queue"),
        tokenize_s=p90_s("tokenize"),
        prefill_s=p90_s("prefill"),
        itl_s=p90_s("itl"),
        overhead=overhead,
        idle=change.get("idle"),
        server_cpu=change.get("server_cpu"),
        num_slow_clients=_mean(moments[1:], lambda moment: moment.num_slow_clients, 0.0),
        num_rejected=(change.get("rejected") or 0.0) * span_s,
    )


def _mean(items: Sequence[T], of: Callable[[T], float], otherwise: float) -> float:
    return sum(map(of, items)) / len(items) if items else otherwise
