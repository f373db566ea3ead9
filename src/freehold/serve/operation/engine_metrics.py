"""Metrics of the engine: how much runs and waits, and what the engine tells of itself."""

import time
from collections.abc import Iterator

import msgspec
from prometheus_client.core import Metric

from freehold.observe.histogram import Histogram
from freehold.observe.state import ITERATION_TOKENS, EngineState, KVUse, StepSeconds, Waiting
from freehold.serve.operation.families import Families
from freehold.serve.service import Service

_DEFERRED = ("leader", "grammar")
"""What answers wait for that isn't capacity, as vLLM calls the rest."""

_UNTOLD = EngineState(
    at_s=0.0, num_running=0, num_prefilling=0, waiting=Waiting(), kv=KVUse(0, 0, 0), prefix_queries_total=0,
    prefix_hits_total=0, preemptions_total=0, computed_total=0, recomputed_total=0, sampled_total=0, steps_total=0,
    iteration_tokens=(0,) * (len(ITERATION_TOKENS) + 1), iteration_tokens_sum=0, step_seconds=StepSeconds(),
)  # fmt: skip
"""Of an engine that has told nothing yet."""


def load_families(families: Families, service: Service) -> Iterator[Metric]:
    """How much is going on.

    What runs is the engine's newest snapshot; what waits is all else that was let in, so it is up to date even while a
    long step keeps the engine from looking at its messages.
    """
    engine, info = service.engine.engine, service.info
    state = engine.state()
    num_live = engine.num_live
    num_running = min(num_live, info.max_num_seqs if state is None else state.num_running)
    num_waiting = num_live - num_running
    reasons = msgspec.structs.asdict(Waiting() if state is None else state.waiting)
    num_unseen = max(0, num_waiting - sum(reasons.values()))
    reasons["order"] += num_unseen
    yield families.gauge("vllm:num_requests_running", "Answers that hold blocks of the KV cache.", num_running)
    yield families.gauge("vllm:num_requests_waiting", "Answers that wait for their first or next turn.", num_waiting)
    num_deferred = sum(reasons[reason] for reason in _DEFERRED)
    by_kind = {"capacity": sum(reasons.values()) - num_deferred, "deferred": num_deferred}
    text = "Of these, the ones that wait for capacity, and for something else."
    yield families.gauges("vllm:num_requests_waiting_by_reason", text, "reason", by_kind)
    yield families.gauges("freehold:queue_reason", "Of these, by what they wait for.", "reason", reasons)
    yield families.gauge(
        "freehold:num_answers_inside", "Answers let in, those included whose prompt is being prepared.",
        service.load.num_answers,
    )  # fmt: skip
    ready = service.not_ready() is None
    yield families.gauge("freehold:ready", "1 if answers can be generated now, as /readyz says.", ready)
    yield families.counter("freehold:engine_starts", "Times that the engine became ready.", engine.num_starts)
    yield families.info(
        "vllm:cache_config_info", "The KV cache.",
        {"block_size": str(info.block_size), "num_gpu_blocks": str(info.num_blocks)},
    )  # fmt: skip
    yield families.info(
        "freehold:engine_info", "What is served, and its limits.",
        {
            "fingerprint": info.fingerprint,
            "backend": info.backend,
            "max_num_seqs": str(info.max_num_seqs),
            "max_model_len": str(info.max_model_len),
        },
    )  # fmt: skip


def engine_families(families: Families, told: EngineState | None) -> Iterator[Metric]:
    """What the engine told last."""
    state = told or _UNTOLD
    if told is not None:
        age_s = max(0.0, time.monotonic() - told.at_s)
        text = "Since the engine told what the metrics say of it."
        yield families.gauge("freehold:engine_state_age_seconds", text, age_s)
    yield from _kv_families(families, state)
    yield families.gauge("freehold:num_requests_prefilling", "Of the running ones, those whose prompt is being "
                         "computed.", state.num_prefilling)  # fmt: skip
    yield families.counter("vllm:num_preemptions", "Times that an answer lost its blocks.", state.preemptions_total)
    yield families.gauge("freehold:thrashing", "1 while much of what is computed had been computed before.",
                         state.is_thrashing)  # fmt: skip
    yield families.counters(
        "freehold:computed_tokens", "Tokens that steps computed, for the first time and again.", "kind",
        {"first": state.computed_total, "again": state.recomputed_total},
    )  # fmt: skip
    steps = Histogram(ITERATION_TOKENS)
    steps.counts, steps.total = list(state.iteration_tokens), state.iteration_tokens_sum
    yield families.histogram("vllm:iteration_tokens_total", "Tokens of each step.", steps)
    yield families.summaries(
        "freehold:step_seconds", "Seconds of the engine's loop, by what it did.", "part",
        msgspec.structs.asdict(state.step_seconds), state.steps_total,
    )  # fmt: skip
    yield from _draft_families(families, state)


def _kv_families(families: Families, state: EngineState) -> Iterator[Metric]:
    kv = state.kv
    usage = kv.held / kv.num_blocks if kv.num_blocks else 0.0
    yield families.gauge("vllm:kv_cache_usage_perc", "Share of the KV cache that running answers hold, 0 to 1.", usage)
    yield families.gauge("vllm:gpu_cache_usage_perc", "Old name of vllm:kv_cache_usage_perc.", usage)
    yield families.gauges(
        "freehold:kv_cache_blocks", "Blocks of the KV cache: held, cached for whoever comes, free.", "state",
        {"held": kv.held, "cached": kv.cached, "free": kv.num_blocks - kv.held - kv.cached},
    )  # fmt: skip
    yield families.gauge("freehold:kv_cache_pinned_blocks", "Of the held and cached ones, those pinned.", kv.pinned)
    yield families.gauge("freehold:kv_cache_public_blocks", "Of these, those that every client may reuse.", kv.public)
    queries, hits = "Tokens of answers that started, looked up in the KV cache.", "Of these, the ones found there."
    yield families.counter("vllm:prefix_cache_queries", queries, state.prefix_queries_total)
    yield families.counter("vllm:prefix_cache_hits", hits, state.prefix_hits_total)
    for name, total in (("queries", state.prefix_queries_total), ("hits", state.prefix_hits_total)):
        yield families.counter(f"vllm:gpu_prefix_cache_{name}", f"Old name of vllm:prefix_cache_{name}_total.", total)


def _draft_families(families: Families, state: EngineState) -> Iterator[Metric]:
    yield families.counter("vllm:spec_decode_num_drafts", "Guesses at how answers go on.", state.drafts_total)
    yield families.counter("vllm:spec_decode_num_draft_tokens", "Tokens guessed.", state.draft_tokens_total)
    yield families.counter("vllm:spec_decode_num_accepted_tokens", "Of these, the right ones.",
                           state.accepted_tokens_total)  # fmt: skip
    by_place = {str(place): num for place, num in enumerate(state.accepted_by_place)}
    text = "Of these, by how many were guessed before them."
    yield families.counters("vllm:spec_decode_num_accepted_tokens_per_pos", text, "position", by_place)
