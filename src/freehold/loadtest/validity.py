"""Whether a point's figures may be trusted, and what a reader should know of them."""

from collections.abc import Iterator, Sequence

import msgspec

from freehold.loadtest.binding import binding_limit
from freehold.loadtest.measurement import Measurement
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Finding, PointResult, SaturationSign
from freehold.loadtest.saturation import sign_of_saturation
from freehold.loadtest.server_metrics import has_restarted

MOST_LAG_MS = 10.0
MOST_SCHEDULE_DELAY_MS = 10.0
LEAST_ACHIEVED_RATE = 0.98
MOST_FAILED = 0.01
LEAST_HIT_RATE = 0.01
"""From there on, hits in the prefix cache are worth a warning where none are meant."""

_SIGNS: dict[SaturationSign, str] = {
    "queue": "requests in flight and TTFT kept growing",
    "refusals": "the server kept refusing requests as too many (HTTP 429 or 503)",
}


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
        yield from _saturation(result, measurements)
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
    yield from _saturation(result, measurements)
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


def _saturation(result: PointResult, measurements: Sequence[Measurement]) -> Iterator[Finding]:
    stopped = result.stopped
    if stopped is not None:
        yield Finding(
            "over_saturated",
            f"stopped after {stopped.after_s:.0f} s, as {_SIGNS[stopped.sign]}: {stopped.num_broken_off} were in "
            f"flight and are broken off, {stopped.num_unasked} weren't asked. The server can't keep up; lower the rate",
        )
        return
    signs = (sign_of_saturation(each.load, each.records, each.duration_s) for each in measurements)
    if (sign := next((each for each in signs if each is not None), None)) is not None:
        longer = ", and a longer run would show worse figures" if sign == "queue" else ""
        yield Finding(
            "over_saturated",
            f"{_SIGNS[sign]}: the server can't keep up{longer}; lower the rate (--detect-saturation stops early)",
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
    if undone := sum(each.lacks_done for each in good):
        yield Finding(
            "no_done", f"{undone} streams ended without [DONE]; that they were whole is known by their reason to finish"
        )
    if empty := sum(each.num_output == 0 and each.first_s is not None for each in good):
        yield Finding("no_tokens", f"usage says that {empty} answers have no tokens, but text came")
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
        if each.num_output is not None
        and each.asked_output is not None
        and (each.num_output > each.asked_output or each.finish_reason == "length")
        and each.num_output != each.asked_output
    ]
    if cut:
        yield Finding(
            "other_length",
            f"{len(cut)} answers are longer than asked for, or ended by their length at another one (the first: "
            f"{cut[0].num_output} instead of {cut[0].asked_output} tokens)",
        )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items(), key=lambda each: -each[1]))
