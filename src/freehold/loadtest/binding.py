"""Which limit of the server bound a point, from what its metrics said meanwhile."""

from collections.abc import Sequence
from http import HTTPStatus

import numpy as np

from freehold.loadtest.measurement import Measurement
from freehold.loadtest.results import Finding
from freehold.loadtest.server_metrics import Reading, has_restarted
from freehold.observe.diagnosis import FEW, Numbers, diagnose


def binding_limit(measurements: Sequence[Measurement]) -> Finding:
    """The limit as a sentence: the one that the live page would say of the same numbers.

    Where the metrics don't say what is needed (llama.cpp's have no use of the KV cache, Ollama has none at all), the
    sentence says so.
    """
    repeats = [each.readings for each in measurements if len(each.readings) > 1]
    # Before the first and after the last request nothing runs: that would be averaged in.
    during = [reading for readings in repeats for reading in readings[1:-1]]
    if not during:
        if repeats:
            return Finding("too_short", "too short for the server's metrics to tell what limited it")
        return _without_metrics({each.metrics_refusal for each in measurements})
    running, waiting, kv_used = (_mean(during, name) for name in ("running", "waiting", "kv_usage"))
    if running is None or waiting is None:
        return Finding("no_metrics", "unknown: the server's metrics don't tell how many requests run and wait")
    if kv_used is None:
        if waiting < FEW:
            return Finding("no_queue", "nothing waits in the server; its metrics don't tell the use of its KV cache")
        return Finding("queue", f"queueing: {waiting:.0f} wait beside {running:.0f} that run; the server's metrics "
                       "don't tell whether for rows or for memory")  # fmt: skip
    found = diagnose(_numbers(measurements, repeats, during, running, waiting, kv_used))
    return Finding(found.code, found.sentence)


def _without_metrics(refusals: set[int | None]) -> Finding:
    """Why nothing is known of the server."""
    if HTTPStatus.UNAUTHORIZED in refusals:
        return Finding("metrics_refused", "unknown: the server shows its metrics only to a key (401): put one that may "
                       "read them into FREEHOLD_API_KEY")  # fmt: skip
    if HTTPStatus.FORBIDDEN in refusals:
        return Finding("metrics_refused", "unknown: the key lacks the right `metrics` (403): make one with `freehold "
                       "keys create bench --endpoints completions,chat,tokenize,metrics`")  # fmt: skip
    return Finding("no_metrics", "unknown: the server shows no metrics that are known here")


def _numbers(
    measurements: Sequence[Measurement],
    repeats: Sequence[Sequence[Reading]],
    during: Sequence[Reading],
    running: float,
    waiting: float,
    kv_used: float,
) -> Numbers:
    counted = [readings for readings in repeats if not has_restarted(readings)]
    prefilling = _mean(during, "prefilling")
    parts = [_change(counted, f"{part}_s") for part in ("plan", "run", "apply", "idle")]
    total_s = sum(each or 0.0 for each in parts)
    plan_s, _, apply_s, idle_s = parts
    computed, recomputed = _change(counted, "computed"), _change(counted, "recomputed")
    num_prefills, prefill_sum_s = _change(counted, "prefill_count"), _change(counted, "prefill_sum_s")
    ttfts_s = [ttft_s for each in measurements for record in each.records if (ttft_s := record.ttft_s) is not None]
    return Numbers(
        num_running=running,
        num_waiting=waiting,
        kv_used=kv_used,
        num_preemptions=_change(counted, "preemptions") or 0.0,
        recomputed=recomputed / (computed + recomputed) if computed and recomputed is not None else None,
        max_num_seqs=int(limit) if (limit := during[-1].values.get("max_num_seqs")) else None,
        num_waiting_rows=_mean(during, "waiting_rows"),
        num_waiting_blocks=_mean(during, "waiting_blocks"),
        num_waiting_grammars=_mean(during, "waiting_grammars"),
        num_decoding=None if prefilling is None else running - prefilling,
        ttft_s=float(np.mean(ttfts_s)) if ttfts_s else None,
        prefill_s=prefill_sum_s / num_prefills if num_prefills and prefill_sum_s is not None else None,
        overhead=((plan_s or 0.0) + (apply_s or 0.0)) / total_s if total_s else None,
        idle=(idle_s or 0.0) / total_s if total_s else None,
    )


def _mean(readings: Sequence[Reading], meaning: str) -> float | None:
    values = [reading.values[meaning] for reading in readings if meaning in reading.values]
    return float(np.mean(values)) if values else None


def _change(repeats: Sequence[Sequence[Reading]], meaning: str) -> float | None:
    """How much a counter rose during the repeats."""
    changes = [
        readings[-1].values[meaning] - readings[0].values[meaning]
        for readings in repeats
        if meaning in readings[0].values and meaning in readings[-1].values
    ]
    return sum(changes) if changes else None
