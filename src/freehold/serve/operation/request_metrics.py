"""Metrics of requests and their answers, and of whose they are."""

from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, Metric

from freehold.access.usage import OUTCOMES
from freehold.logs import num_dropped
from freehold.serve.operation.counts import REJECTIONS, Counts
from freehold.serve.operation.families import Families
from freehold.serve.operation.timings import Ending, Timings
from freehold.serve.recording import FlightRecorder
from freehold.serve.tracing.tracing import Tracing

_TOKENS = ("prompt", "cached", "output", "reasoning")


def answer_families(families: Families, timings: Timings) -> Iterator[Metric]:
    """How long answers take, and how many tokens they have."""
    for name, text, histogram in (
        ("time_to_first_token_seconds", "From a request's arrival to an answer's first token.", timings.ttft),
        ("inter_token_latency_seconds", "From a token to the next.", timings.itl),
        ("time_per_output_token_seconds", "Old name of vllm:inter_token_latency_seconds.", timings.itl),
        ("request_time_per_output_token_seconds", "Of an answer, from its first token to its last, by token.",
         timings.tpot),
        ("e2e_request_latency_seconds", "From a request's arrival to an answer's end.", timings.e2e),
        ("request_queue_time_seconds", "From asking the engine to an answer's first step.", timings.queue),
        ("request_prefill_time_seconds", "From there to its first token.", timings.prefill),
        ("request_decode_time_seconds", "From there to its end.", timings.decode),
        ("request_prompt_tokens", "Tokens of a prompt.", timings.prompt_tokens),
        ("request_generation_tokens", "Tokens of an answer.", timings.generation_tokens),
    ):  # fmt: skip
        yield families.histogram(f"vllm:{name}", text, histogram)
    ends = {end: timings.ends[end] for end in get_args(Ending)}
    yield families.counters("vllm:request_success", "Answers, by why they ended.", "finished_reason", ends)
    yield families.counter("vllm:generation_tokens", "Tokens of answers, as they come.", timings.num_tokens)


def request_families(families: Families, counts: Counts) -> Iterator[Metric]:
    """What became of requests."""
    total = counts.total()
    yield families.counter("vllm:prompt_tokens", "Tokens of prompts, of requests that ended.", total.prompt_tokens)
    yield families.counter("vllm:prompt_tokens_cached", "Of these, the ones reused from the KV cache.",
                           total.cached_tokens)  # fmt: skip
    rejected = {code: counts.rejected[code] for code in sorted(REJECTIONS)}
    text = "Requests turned away before anything was begun."
    yield families.counters("vllm:admission_rejections", text, "reason", rejected)
    outcomes: dict[str, float] = dict.fromkeys(OUTCOMES, 0)
    for (_, outcome), used in counts.used.items():
        outcomes[outcome] += used.requests
    yield families.counters("freehold:requests", "Requests to generate, by how they ended.", "outcome", outcomes)
    text = "Lines of the server's log that were lost, as nobody took them."
    yield families.counter("freehold:log_lines_dropped", text, num_dropped())


def trace_families(families: Families, tracing: Tracing | None) -> Iterator[Metric]:
    """What became of traces, if there are any."""
    if tracing is not None:
        text = "Traced requests whose spans could not be sent."
        yield families.counter("freehold:traces_lost", text, tracing.num_lost)


def recording_families(families: Families, recording: FlightRecorder | None) -> Iterator[Metric]:
    """What became of the flight recorder's records, if there is one."""
    if recording is None:
        return
    counts = recording.counts
    results = {"written": counts.written, "dropped": counts.dropped}
    text = "Beginnings and ends of recorded requests, and their steps, by whether they reached the disk."
    yield families.counters("freehold:records", text, "result", results)
    text = "1 while nothing can be recorded, as the disk is full or the folder can't be written."
    yield families.gauge("freehold:recording_stopped", text, recording.is_stopped)


def key_families(counts: Counts) -> Iterator[Metric]:
    """What keys used."""
    requests = CounterMetricFamily("freehold:key_requests", "Requests to generate.", labels=("key", "outcome"))
    tokens = CounterMetricFamily("freehold:key_tokens", "Tokens; cached ones are the prompt's, reasoning the "
                                 "output's.", labels=("key", "kind"))  # fmt: skip
    sums: dict[str, dict[str, int]] = {}
    for (key_id, outcome), used in counts.used.items():
        requests.add_metric((key_id, outcome), used.requests)
        kinds = sums.setdefault(key_id, dict.fromkeys(_TOKENS, 0))
        for kind in _TOKENS:
            kinds[kind] += getattr(used, f"{kind}_tokens")
    for key, kinds in sums.items():
        for kind, number in kinds.items():
            tokens.add_metric((key, kind), number)
    yield requests
    yield tokens
