"""Results of load tests that nobody ran."""

import random

import numpy as np

from freehold.loadtest.results import (
    ClientFigures,
    Detail,
    Distribution,
    Finding,
    Goodput,
    Load,
    PointResult,
    RunFacts,
    RunResult,
    ServerFigures,
    ServerSample,
)

LIMIT_MS = 400.0


def distribution(values_ms):
    percents = {str(percent): float(np.percentile(values_ms, percent)) for percent in (50, 90, 95, 99)}
    return Distribution(
        len(values_ms), float(np.mean(values_ms)), float(np.median(values_ms)), float(np.std(values_ms)), percents
    )


def point(concurrency, num=60, seed=0, *, slower=1.0, repeats=1, **changed):
    """A server that is full at some eight requests at a time."""
    source = random.Random(f"{concurrency} {seed}")
    detail = Detail([], [], [], [], [], [], [], [], [], [], [], [])
    free = [0.0] * concurrency
    for number in range(num * repeats):
        if number % num == 0:
            free = [0.0] * concurrency
        start_s = min(free)
        ttft = slower * 0.05 * max(1.0, concurrency / 8) * source.lognormvariate(0, 0.4)
        gaps = [slower * 0.01 * max(1.0, concurrency / 8) * source.lognormvariate(0, 0.2) for _ in range(19)]
        failed = number % 50 == 49
        detail.input_lens.append(100)
        detail.output_lens.append(0 if failed else 20)
        detail.ttfts.append(0.0 if failed else ttft)
        detail.ttfots.append(None if failed else ttft)
        detail.itls.append([] if failed else gaps)
        detail.latencies.append(ttft if failed else ttft + sum(gaps))
        detail.start_times.append(start_s)
        detail.queue_times.append(0.0)
        detail.errors.append("connection reset" if failed else "")
        detail.cached_lens.append(0)
        detail.repeats.append(number // num)
        detail.request_ids.append(f"bench-1-0-{number // num}-{number % num}-0")
        free[free.index(start_s)] = start_s + detail.latencies[-1]
    whole = [index for index, error in enumerate(detail.errors) if not error]
    ttfts = [detail.ttfts[index] * 1000 for index in whole]
    duration = max(start + took for start, took in zip(detail.start_times, detail.latencies, strict=True)) * repeats
    output = 20 * len(whole)
    good = sum(ttft <= LIMIT_MS for ttft in ttfts)
    latencies = {
        "ttft": distribution(ttfts),
        "tpot": distribution([sum(detail.itls[index]) / 19 * 1000 for index in whole]),
        "itl": distribution([gap * 1000 for index in whole for gap in detail.itls[index]]),
        "e2el": distribution([detail.latencies[index] * 1000 for index in whole]),
    }
    fields = {
        "load": Load(kind="closed", concurrency=concurrency),
        "seed": seed,
        "num_warmups": 1,
        "duration": duration,
        "completed": len(whole),
        "failed": len(detail.errors) - len(whole),
        "total_input_tokens": 100 * len(whole),
        "total_output_tokens": output,
        "total_cached_tokens": 0,
        "request_throughput": len(whole) / duration,
        "output_throughput": output / duration,
        "total_token_throughput": 6 * output / duration,
        "max_output_tokens_per_s": output / duration * 1.3,
        "max_concurrent_requests": concurrency,
        "tokens_per_chunk": 1.0,
        "latencies": latencies,
        "from_intended": {name: latencies[name] for name in ("ttft", "e2el")},
        "client_queue": distribution([0.0] * len(whole)),
        "goodput": Goodput({"ttft": LIMIT_MS}, good, good / len(detail.errors), good / duration, {"ttft": 0}),
        "intervals": {
            "output_throughput": (output / duration * 0.95, output / duration * 1.06),
            "p50_ttft_ms": (latencies["ttft"].percentiles["50"] * 0.9, latencies["ttft"].percentiles["50"] * 1.1),
        },
        "too_few": ["p99_ttft_ms", "p95_ttft_ms"],
        "token_sources": {"usage": len(whole)},
        "error_counts": {"connection reset": len(detail.errors) - len(whole)}
        if len(whole) < len(detail.errors)
        else {},
        "hit_rate": 0.004,
        "hit_rate_source": "metrics",
        "server": ServerFigures(
            prefix_queries=1000.0,
            prefix_hits=4.0,
            timeline=[
                ServerSample(
                    duration * step / 40, min(concurrency, 8), max(concurrency - 8, 0), min(step, 12) / 20, step
                )
                for step in range(41)
            ],
        ),
        "client": ClientFigures(0.4, 1.2, 0.1, None, 0.2),
        "binding_limit": None,
        "invalid": [],
        "warnings": [],
        "repeats": [],
        "detail": detail,
    }
    return PointResult(**fields | changed)


def facts(**changed):
    fields = {
        "date": "2026-03-01T12:00:00+00:00",
        "version": "0.1.0",
        "backend": "openai",
        "base_url": "http://127.0.0.1:8000",
        "endpoint": "/v1/completions",
        "model_id": "smollm2",
        "tokenizer_id": "smollm2",
        "label": None,
        "dataset": "random",
        "num_prompts": 60,
        "seed": 1,
        "arguments": {"ignore_eos": True, "dataset": {"name": "random", "random_input_len": 100}},
        "server": {"version": "0.1.0"},
        "metadata": {"gpu": "none"},
    }
    return RunFacts(**fields | changed)


def run(concurrencies=(1, 2, 4, 8, 16, 32), **how):
    """A run over some loads, with a knee at 16 and the operating point at 8."""
    points = tuple(point(each, **how) for each in concurrencies)
    knee = concurrencies.index(16) if 16 in concurrencies else None
    best = concurrencies.index(8) if 8 in concurrencies else None
    return RunResult(facts(), points, knee, best)


QUEUEING = Finding("max_num_seqs", "requests wait while the KV cache is 41 % used: raise --max-num-seqs")
