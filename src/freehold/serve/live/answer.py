"""From what the board has seen to the JSON that tells of it."""

import msgspec

from freehold import __version__
from freehold.observe import state
from freehold.observe.diagnosis import Diagnosis, diagnose
from freehold.observe.history import DURATIONS, WINDOWS_S, Moment, Point, Ring, changes
from freehold.observe.spread import Spread
from freehold.observe.state import EngineState
from freehold.serve.live.numbers import RECENT_S, numbers_of
from freehold.serve.live.schema import (
    KV,
    About,
    Binding,
    Columns,
    History,
    KeyUse,
    Latencies,
    Limits,
    LiveAnswer,
    Namespace,
    Now,
    Percentiles,
    Speculation,
    StepShares,
    Tier,
    TokenRates,
    Waiting,
)
from freehold.serve.service import Service
from freehold.settings import SETTINGS_BY_NAME

MAX_KEYS = 20
"""Keys whose use is told, the busiest ones."""

SHARED, NO_KEY = "shared", "no key"
"""Names of what is everybody's in the KV cache, and of what belongs to requests without a key."""


def live_answer(service: Service, since_s: float) -> LiveAnswer:
    """All that is told.

    Args:
        since_s: Unix seconds; of points and ended requests only the later ones.
    """
    board, history = service.board, service.board.history
    moments = history.recent(RECENT_S)
    newest = moments[-1]
    recent = changes(moments[0], newest)
    return LiveAnswer(
        cursor=board.now_s(),
        server=_about(service, newest),
        binding=_binding(diagnose(numbers_of(service))),
        now=_now(service, newest, recent),
        latencies=tuple(_latencies(service, position) for position in range(len(WINDOWS_S))),
        history=History(fine=_columns(history.fine, since_s), coarse=_columns(history.coarse, since_s)),
        requests=board.requests.lines(since_s, service.engine.engine.state()),
    )


def _about(service: Service, newest: Moment) -> About:
    info, engine = service.info, service.engine.engine
    not_ready = service.not_ready()
    return About(
        model=service.config.served_model_name,
        model_family=info.model_family,
        backend=info.backend,
        version=__version__,
        fingerprint=info.fingerprint,
        started_at=service.created,
        uptime_s=round(newest.at_s - service.created, 1),
        ready=not_ready is None,
        why_not_ready="" if not_ready is None else str(not_ready),
        num_engine_starts=engine.num_starts,
        limits=Limits(
            max_num_seqs=info.max_num_seqs,
            max_model_len=info.max_model_len,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_num_queued_reqs=engine.max_num_queued_reqs,
            block_size=info.block_size,
            kv_tokens=info.kv_tokens,
        ),
    )


def _binding(found: Diagnosis) -> Binding:
    flags = tuple(SETTINGS_BY_NAME[name].flag for name in found.settings)
    return Binding(code=found.code, severity=found.severity, sentence=found.sentence, settings=flags)


def _now(service: Service, newest: Moment, recent: Point) -> Now:
    engine = newest.engine
    waiting = state.Waiting() if engine is None else engine.waiting

    def rate(name: str) -> float:
        return round(recent.get(name) or 0.0, 4)

    return Now(
        at=round(newest.at_s, 3),
        engine_age_s=None if engine is None else round(max(0.0, newest.at_s - service.board.at_s(engine.at_s)), 3),
        running=newest.num_running if engine is None else engine.num_running,
        prefilling=0 if engine is None else engine.num_prefilling,
        waiting=Waiting(total=waiting.total, **msgspec.structs.asdict(waiting)),
        num_inside=service.load.num_answers,
        kv=_kv(service, engine),
        hit_rate=recent.get("hit_rate"),
        preemptions_per_s=rate("preemptions"),
        steps_per_s=rate("steps"),
        step_shares=StepShares(plan=rate("plan"), run=rate("run"), apply=rate("apply"), idle=rate("idle")),
        tokens_per_s=TokenRates(
            computed=rate("computed"), recomputed=rate("recomputed"), cached=rate("cached"), output=rate("output")
        ),
        speculation=_speculation(recent),
        num_slow_clients=newest.num_slow_clients,
        server_cpu=rate("server_cpu"),
        loop_lag_s=round(newest.lag_s, 4),
        rejected_per_s=rate("rejected"),
        keys=_keys(service),
    )


def _kv(service: Service, engine: EngineState | None) -> KV:
    if engine is None:
        free = service.info.num_blocks
        return KV(used=0.0, tiers=(Tier(name="ram", num_blocks=free, held=0, cached=0, pinned=0, free=free),),
                  by_namespace=())  # fmt: skip
    use = engine.kv
    ram = Tier(
        name="ram",
        num_blocks=use.num_blocks,
        held=use.held,
        cached=use.cached,
        pinned=use.pinned,
        free=use.num_blocks - use.held - use.cached,
    )
    by_name = {SHARED: use.public} if use.public else {}
    for namespace, num_blocks in use.by_namespace:
        key_id, _, _ = namespace.partition(" ")  # what follows is a salt, and the client's secret
        name = service.gatekeeper.name_of(key_id) or NO_KEY
        by_name[name] = by_name.get(name, 0) + num_blocks
    largest_first = sorted(by_name.items(), key=lambda item: -item[1])
    spaces = tuple(Namespace(name=name, num_blocks=num) for name, num in largest_first)
    return KV(used=round(use.held / max(1, use.num_blocks), 4), tiers=(ram,), by_namespace=spaces)


def _speculation(recent: Point) -> Speculation | None:
    accepted = recent.get("accepted")
    if accepted is None:
        return None
    return Speculation(drafts_per_s=recent["drafts"] or 0.0, accepted=accepted, per_step=recent["per_draft"] or 0.0)


def _keys(service: Service) -> tuple[KeyUse, ...]:
    """What the busiest keys used."""
    board, running = service.board, service.board.requests.num_by_key
    minute, hour = board.minute.total, board.hour.total
    uses = [
        KeyUse(
            key=service.gatekeeper.name_of(key_id),
            num_running=running[key_id],
            minute_requests=minute[key_id, "requests"],
            minute_tokens=minute[key_id, "prompt_tokens"] + minute[key_id, "output_tokens"],
            hour_requests=hour[key_id, "requests"],
            hour_prompt_tokens=hour[key_id, "prompt_tokens"],
            hour_cached_tokens=hour[key_id, "cached_tokens"],
            hour_output_tokens=hour[key_id, "output_tokens"],
        )
        for key_id in board.hour.keys | running.keys()
    ]
    uses.sort(key=lambda use: (-use.hour_prompt_tokens - use.hour_output_tokens, -use.num_running, use.key))
    return tuple(uses[:MAX_KEYS])


def _latencies(service: Service, position: int) -> Latencies:
    windows = service.board.history.windows
    return Latencies(
        window_s=WINDOWS_S[position],
        **{name: _percentiles(windows[name][position].total) for name in DURATIONS},
    )


def _percentiles(spread: Spread) -> Percentiles:
    p50_s, p90_s, p99_s = map(_rounded, spread.quantiles(0.5, 0.9, 0.99))
    return Percentiles(count=spread.num, mean_s=_rounded(spread.mean_s), p50_s=p50_s, p90_s=p90_s, p99_s=p99_s)


def _columns(ring: Ring, since_s: float) -> Columns:
    at, columns = ring.since(since_s)
    return Columns(step_s=ring.step_s, at=at, columns=columns)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)
