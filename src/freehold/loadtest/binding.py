"""Which limit of the server bound a point, from what its metrics said meanwhile."""

import numpy as np

from freehold.loadtest.results import Finding, PointResult, ServerSample

_FULL = 0.95
_ROOMY = 0.9


def binding_limit(result: PointResult) -> Finding | None:
    """The limit, as a sentence; None if nothing speaks for one.

    Where the metrics don't say what is needed (llama.cpp's have no KV use, Ollama has none at all), the finding says
    so.
    """
    samples = result.server.timeline[1:-1] or result.server.timeline
    if not samples:
        return Finding("no_metrics", "the server shows no metrics that are known here: its limit can't be named")
    waiting, kv_usage = _median(samples, "waiting"), _peak(samples, "kv_usage")
    if waiting is None:
        return Finding("no_metrics", "the server's metrics don't tell how many requests wait: its limit can't be named")
    if result.server.preemptions or (kv_usage is not None and kv_usage >= _FULL and waiting >= 1):
        return Finding(
            "kv_memory",
            f"KV memory: {result.server.preemptions or 0:.0f} preemptions, "
            + ("KV use unknown" if kv_usage is None else f"KV {kv_usage:.0%} used at most")
            + "; give the KV cache more memory, or requests fewer tokens",
        )
    if waiting >= 1 and kv_usage is None:
        return Finding("queue", f"queueing: {waiting:.0f} requests wait; the metrics don't tell the use of KV memory")
    if waiting >= 1 and kv_usage is not None and kv_usage < _ROOMY:
        return Finding(
            "max_num_seqs", f"queueing: {waiting:.0f} requests wait, KV {kv_usage:.0%} used: raise --max-num-seqs"
        )
    return None


def _told(samples: list[ServerSample], name: str) -> list[float]:
    return [value for each in samples if (value := getattr(each, name)) is not None]


def _median(samples: list[ServerSample], name: str) -> float | None:
    values = _told(samples, name)
    return float(np.median(values)) if values else None


def _peak(samples: list[ServerSample], name: str) -> float | None:
    return max(_told(samples, name), default=None)
