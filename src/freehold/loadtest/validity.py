"""Whether a point's figures may be trusted, and what a reader should know of them."""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from freehold.loadtest.binding import binding_limit
from freehold.loadtest.measurement import Measurement
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Finding, PointResult
from freehold.loadtest.server_metrics import has_restarted
from freehold.loadtest.statistics import slope

MOST_LAG_MS = 10.0
MOST_SCHEDULE_DELAY_MS = 10.0
LEAST_ACHIEVED_RATE = 0.98
MOST_FAILED = 0.01
LEAST_HIT_RATE = 0.01
"""From there on, hits in the prefix cache are worth a warning where none are meant."""

MIN_SATURATION_S = 30.0
"""A shorter measurement doesn't tell a queue that grows from one that comes and goes."""

_SIGNIFICANT = 3.0  # standard errors


def judged(result: PointResult, measurements: Sequence[Measurement], *, expects_hits: bool) -> PointResult:
    """The result with what is wrong with it, what is worth knowing, and what limited the server."""
    return msgspec.structs.replace(
        result,
        invalid=list(_faults(result, measurements)),
        warnings=list(_warnings(result, measurements, expects_hits=expects_hits)),
        binding_limit=binding_limit(measurements),
    )


def _faults(result: PointResult, measurements: Sequence[Measurement]) -> Iterator[Finding]:
    client = result.client
    if not result.completed:
        yield Finding("nothing_completed", "no request succeeded")
        return
    if client.lag_p99_ms > MOST_LAG_MS:
        yield Finding(
            "client_lag",
            f"the load tester itself was late by {client.lag_p99_ms:.0f} ms at p99: latencies are up to that much too "
            "long; give it a core of its own, or less load",
        )
    if client.schedule_delay_ms > MOST_SCHEDULE_DELAY_MS:
        yield Finding("schedule_delay", f"requests were taken up {client.schedule_delay_ms:.0f} ms late at the median")
    if client.achieved_rate is not None and client.achieved_rate < LEAST_ACHIEVED_RATE:
        yield Finding(
            "rate_not_reached",
            f"only {client.achieved_rate:.1%} of the rate was reached; raise --max-concurrency or lower the rate",
        )
    if any(is_over_saturated(each) for each in measurements):
        yield Finding(
            "over_saturated",
            "requests in flight and TTFT kept growing: the server can't keep up, and a longer run would show worse "
            "figures; lower the rate",
        )
    num_asked = result.completed + result.failed
    if result.failed > MOST_FAILED * num_asked:
        first = next(record.message for each in measurements for record in each.records if not record.succeeded)
        told = f"{_counts(result.error_counts)}; the first: {first}" if first else _counts(result.error_counts)
        yield Finding("failures", f"{result.failed} of {num_asked} requests failed ({told})")
    if unknown := result.token_sources.get("unknown"):
        yield Finding(
            "unknown_tokens",
            f"nobody counted the tokens of {unknown} answers: the server sends neither usage nor token ids; name its "
            "tokenizer with --tokenizer",
        )
    concurrency = result.load.concurrency
    if concurrency is not None and result.max_concurrent_requests < concurrency:
        yield Finding(
            "concurrency_not_reached",
            f"only {result.max_concurrent_requests} of {concurrency} requests were in flight together; raise "
            "--num-prompts",
        )


def _warnings(result: PointResult, measurements: Sequence[Measurement], *, expects_hits: bool) -> Iterator[Finding]:
    if any(has_restarted(each.readings) for each in measurements):
        yield Finding(
            "server_restarted",
            "a counter of the server's metrics fell: it was restarted meanwhile, and what it counted is unknown",
        )
    if not result.is_complete:
        yield Finding("interrupted", "interrupted: the figures are of what had ended by then")
    if result.failed and result.failed <= MOST_FAILED * (result.completed + result.failed):
        yield Finding("failures", f"{result.failed} requests failed ({_counts(result.error_counts)})")
    if any(each.num_cut for each in measurements):
        told = (
            "the server may have cached what was asked before it"
            if expects_hits
            else "its prompts are of another seed, as the server may have cached the first ones"
        )
        yield Finding("measured_anew", f"measured anew after an interruption: {told}")
    if unasked := sum(each.num_unasked for each in measurements):
        yield Finding("unasked_turns", f"{unasked} turns weren't asked, since one before them failed")
    if result.hit_rate is not None and result.hit_rate >= LEAST_HIT_RATE and not expects_hits:
        yield Finding(
            "prefix_cache_hits",
            f"{result.hit_rate:.1%} of the prompts' tokens were cached, though this run sends no prompt twice: they "
            "share a beginning (a chat template, a system prompt), an earlier run with the same --seed sent them, or "
            "other clients were served",
        )
    if result.tokens_per_chunk is not None and abs(result.tokens_per_chunk - 1) > 0.05:
        yield Finding(
            "tokens_per_chunk",
            f"{result.tokens_per_chunk:.2f} tokens a chunk: ITL is the time between chunks, TPOT that of a token",
        )
    if tokenized := result.token_sources.get("tokenizer"):
        yield Finding(
            "tokenized", f"tokens of {tokenized} answers were counted with --tokenizer: the server doesn't tell them"
        )
    yield from _miscounts([record for each in measurements for record in each.records if record.succeeded])
    concurrency = result.load.concurrency
    if concurrency is not None and result.completed < 2 * concurrency * len(measurements):
        yield Finding(
            "mostly_edges",
            f"fewer than two requests for each of {concurrency} slots: the beginning and the end, with fewer at work, "
            "weigh much",
        )


def _miscounts(good: Sequence[RequestRecord]) -> Iterator[Finding]:
    """Answers whose counts can't be true or contradict each other, or that have other lengths than asked for."""
    impossible = sum(each.num_refused_counts > 0 for each in good)
    if impossible:
        yield Finding(
            "impossible_usage",
            f"usage of {impossible} answers has counts that can't be true (negative, immense, or more cached than "
            "asked): they count as not told",
        )
    contradicting = [each for each in good if each.num_ids is not None and each.num_ids != each.num_output]
    if contradicting:
        first = contradicting[0]
        yield Finding(
            "usage_mismatch",
            f"usage contradicts the token ids of {len(contradicting)} answers (the first: {first.num_output} and "
            f"{first.num_ids}); usage counts",
        )
    cut = [
        each
        for each in good
        if each.finish_reason == "length"
        and None not in (each.num_output, each.asked_output)
        and each.num_output != each.asked_output
    ]
    if cut:
        yield Finding(
            "other_length",
            f"{len(cut)} answers that ended by their length have other lengths than asked for (the first: "
            f"{cut[0].num_output} instead of {cut[0].asked_output} tokens)",
        )


def is_over_saturated(measurement: Measurement) -> bool:
    """Requests came at a rate, and both those in flight and their TTFT grew significantly through the measurement."""
    started = [each for each in measurement.records if each.succeeded and each.first_s is not None]
    if measurement.load.kind == "closed" or measurement.duration_s < MIN_SATURATION_S or len(started) < 20:
        return False
    times = [each.intended_s for each in started]
    if max(times) - min(times) < MIN_SATURATION_S / 2:
        return False  # a burst: its queue is the point of it
    ttfts = [(each.first_s or 0.0) - each.intended_s for each in started]
    return all(slope(times, values)[1] > _SIGNIFICANT for values in (ttfts, in_flight(started, measurement.records)))


def in_flight(moments: Sequence[RequestRecord], records: Sequence[RequestRecord]) -> list[float]:
    """How many requests had been meant to start and had not ended, whenever one of these was meant to start."""
    starts = np.sort([each.intended_s for each in records])
    ends = np.sort([each.ended_s for each in records])
    at = np.asarray([each.intended_s for each in moments])
    return [float(each) for each in np.searchsorted(starts, at, "right") - np.searchsorted(ends, at, "right")]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items(), key=lambda each: -each[1]))
