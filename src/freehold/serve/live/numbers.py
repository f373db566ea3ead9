"""What the diagnosis is made from, as this server knows it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from freehold.observe.diagnosis import Numbers
from freehold.observe.history import COARSE_S, Moment, changes
from freehold.observe.state import EngineState
from freehold.serve.entrance.record import Record
from freehold.serve.live.board import Board
from freehold.serve.live.moments import since_start, telling
from freehold.serve.service import Service

T = TypeVar("T")
Known = TypeVar("Known", float, None)

RECENT_S = 5
"""Seconds that rates, shares and the diagnosis are of."""
RARE_S = COARSE_S
"""And what happens seldom."""


def numbers_of(service: Service) -> Numbers:
    """Of the last seconds, and of one engine: what another did before it doesn't count."""
    board, engine = service.board, service.engine.engine
    moments = _recent(service, RECENT_S)
    change = changes(moments[0], moments[-1])
    long = _recent(service, RARE_S)
    rare = changes(long[0], long[-1])
    known = since_start(moments[1:] or moments, engine.num_starts)
    states = telling([moment.engine for moment in known if moment.engine is not None])
    no_token = [record for record in board.requests.live if record.first_s is None]
    not_ready = service.not_ready()
    newest = engine.state()  # as the requests without a token are those of now
    stages = _first_token_stages(board, no_token, newest)
    overhead = None if change["plan"] is None else (change["plan"] or 0.0) + (change["apply"] or 0.0)
    span_s = long[-1].at_s - long[0].at_s
    again = rare["recomputed"] or 0.0
    computed = again + (rare["computed"] or 0.0)
    return Numbers(
        num_running=_mean(states, lambda state: state.num_running, engine.num_live),
        num_waiting=_mean(states, lambda state: state.waiting.total, 0.0),
        kv_used=_mean(states, lambda state: state.kv.held / max(1, state.kv.num_blocks), 0.0),
        why_not_ready="" if not_ready is None else str(not_ready),
        num_preemptions=(rare["preemptions"] or 0.0) * span_s,
        recomputed=again / computed if computed else None,
        max_num_seqs=service.info.max_num_seqs,
        num_waiting_rows=_mean(states, lambda state: state.waiting.rows, None),
        num_waiting_blocks=_mean(states, lambda state: state.waiting.blocks, None),
        num_waiting_grammars=_mean(states, lambda state: state.waiting.grammar, 0.0)
        + _mean(moments[1:], lambda moment: moment.num_compiling, 0.0),
        num_rejected=(rare["queue_full"] or 0.0) * span_s,
        num_preparing=_mean(moments[1:], lambda moment: moment.num_preparing, 0.0),
        num_first_tokens=_mean(states, _num_first_tokens, None),
        num_decoding=_mean(states, lambda state: state.num_running - state.num_prefilling, None),
        longest_prompt=max((record.num_prompt_tokens for record in no_token), default=None),
        step_tokens=engine.max_num_batched_tokens,
        ttft_s=stages.ttft_s,
        tokenize_s=stages.tokenize_s,
        prefill_s=stages.prefill_s,
        overhead=overhead,
        idle=change["idle"],
        server_cpu=change["server_cpu"],
        num_slow_clients=_mean(moments[1:], lambda moment: moment.num_slow_clients, 0.0),
    )


def _recent(service: Service, num_seconds: int) -> Sequence[Moment]:
    """The last moments, since the engine's last start; the newest one if none was since."""
    moments = service.board.history.recent(num_seconds)
    return since_start(moments, service.engine.engine.num_starts) or moments[-1:]


@dataclass(frozen=True, slots=True)
class _FirstTokenStages:
    """How long it takes to first tokens, in all and in some stages. None if none came lately."""

    ttft_s: float | None
    tokenize_s: float | None
    prefill_s: float | None


def _first_token_stages(board: Board, no_token: Sequence[Record], engine: EngineState | None) -> _FirstTokenStages:
    """Of those that came, the 90th percentiles; or of the oldest whose prompt is computed now, if that takes longer
    already.

    Args:
        no_token: requests without one, oldest first.
        engine: what it told last.
    """
    ttft_s, tokenize_s, prefill_s = (
        board.history.last_seconds[name].total.quantile(0.9) for name in ("ttft", "tokenize", "prefill")
    )
    begun_s = {} if engine is None else {each.request_id: each.started_s for each in engine.beginnings}
    for record in no_token:
        known = [at_s for engine_id in record.engine_ids if (at_s := begun_s.get(engine_id)) is not None]
        if not known or record.tokenized_s is None:
            continue
        now_s = time.monotonic()
        if now_s - record.started_s > (ttft_s or 0.0):
            ttft_s, prefill_s = now_s - record.started_s, now_s - min(known)
            tokenize_s = record.tokenized_s - record.started_s
        break
    return _FirstTokenStages(ttft_s, tokenize_s, prefill_s)


def _num_first_tokens(state: EngineState) -> float:
    """Requests whose prompts are computed, or would be if a step held more tokens."""
    return state.num_prefilling + state.waiting.tokens + state.waiting.order


def _mean(items: Sequence[T], of: Callable[[T], float], otherwise: Known) -> float | Known:
    return sum(map(of, items)) / len(items) if items else otherwise
