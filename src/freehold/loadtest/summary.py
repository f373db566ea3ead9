"""From the records of a point's repeats to its figures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from freehold.loadtest import latencies, throughput
from freehold.loadtest.goodput import goodput
from freehold.loadtest.latencies import values_s
from freehold.loadtest.measurement import Measurement
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import (
    ClientFigures,
    Detail,
    HitRateSource,
    Metric,
    PointResult,
    RepeatFigures,
    ServerFigures,
)
from freehold.loadtest.server_metrics import figures_of
from freehold.loadtest.statistics import distribution
from freehold.loadtest.throughput import rate
from freehold.loadtest.validity import judged

ALWAYS_PERCENTS = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a point's figures depend on beside its measurements.

    Attributes:
        percents: further percentiles.
        limits_ms: of the goodput; empty for none.
        expects_hits: prompts share beginnings, or the cache is warm, on purpose.
    """

    percents: tuple[float, ...] = ()
    limits_ms: Mapping[Metric, float] = field(default_factory=dict)
    expects_hits: bool = False
    num_warmups: int = 0


def summarize(measurements: Sequence[Measurement], wanted: Wanted) -> PointResult:
    """The figures of a point from its repeats: counts and times are summed, latencies pooled."""
    records = [record for each in measurements for record in each.records]
    good = [record for record in records if record.succeeded]
    duration_s = sum(each.duration_s for each in measurements)
    percents = sorted({*ALWAYS_PERCENTS, *wanted.percents})
    num_input, num_output = (sum(getattr(each, name) or 0 for each in good) for name in ("num_input", "num_output"))
    from_send = latencies.from_send(good, percents)
    server = figures_of([(each.origin_s, each.readings) for each in measurements])
    hit_rate, hit_rate_source = _hit_rate(server, good)
    repeats = [[record for record in each.records if record.succeeded] for each in measurements]
    result = PointResult(
        load=measurements[0].load,
        seed=measurements[0].seed,
        num_warmups=wanted.num_warmups,
        duration=duration_s,
        completed=len(good),
        failed=len(records) - len(good),
        total_input_tokens=num_input,
        total_output_tokens=num_output,
        total_cached_tokens=sum(each.num_cached or 0 for each in good),
        request_throughput=rate(len(good), duration_s),
        output_throughput=rate(num_output, duration_s),
        total_token_throughput=rate(num_input + num_output, duration_s),
        max_output_tokens_per_s=max(map(throughput.peak_tokens_per_s, repeats)),
        max_concurrent_requests=max(throughput.peak_requests(each.records) for each in measurements),
        tokens_per_chunk=throughput.tokens_per_chunk(good),
        latencies=from_send,
        from_intended=latencies.from_intended(good, percents),
        client_queue=distribution([each.queue_s for each in good], percents),
        goodput=goodput(records, duration_s, wanted.limits_ms) if wanted.limits_ms else None,
        intervals=latencies.intervals(repeats, percents) | throughput.throughput_intervals(measurements),
        too_few=latencies.too_few(from_send, percents),
        token_sources=dict(Counter(str(each.source) for each in good)),
        error_counts=dict(Counter(each.error for each in records if each.error)),
        hit_rate=hit_rate,
        hit_rate_source=hit_rate_source,
        server=server,
        client=_client(measurements),
        repeats=[_repeat(each) for each in measurements],
        is_complete=all(each.is_complete for each in measurements),
        stopped=next((each.stopped for each in measurements if each.stopped), None),
        detail=_detail(measurements),
    )
    return judged(result, measurements, expects_hits=wanted.expects_hits)


def _hit_rate(server: ServerFigures, good: Sequence[RequestRecord]) -> tuple[float | None, HitRateSource | None]:
    """The share of prompt tokens that the server had cached: by its metrics, or else by the answers' usage."""
    if server.prefix_queries and server.prefix_hits is not None:
        return server.prefix_hits / server.prefix_queries, "metrics"
    told = [each for each in good if each.num_cached is not None and each.num_input]
    if told:
        return sum(each.num_cached or 0 for each in told) / sum(each.num_input or 0 for each in told), "usage"
    return None, None


def _client(measurements: Sequence[Measurement]) -> ClientFigures:
    lags_s = [lag for each in measurements for lag in each.lags_s] or [0.0]
    delays_s = [max(each.taken_up_s - each.intended_s, 0.0) for point in measurements for each in point.records]
    rates = [found for each in measurements if (found := achieved_rate(each)) is not None]
    wall_s = sum(each.duration_s for each in measurements)
    return ClientFigures(
        lag_p99_ms=float(np.percentile(lags_s, 99)) * 1000,
        lag_max_ms=max(lags_s) * 1000,
        schedule_delay_ms=float(np.median(delays_s)) * 1000 if delays_s else 0.0,
        achieved_rate=min(rates) if rates else None,
        cpu_fraction=rate(sum(each.cpu_s for each in measurements), wall_s),
    )


def achieved_rate(measurement: Measurement) -> float | None:
    """How fast requests were sent by how fast they were meant to be; None if there was no rate."""
    starts = [each for each in measurement.records if each.turn == 0]
    if measurement.load.kind == "closed" or len(starts) < 2:
        return None
    asked_s = max(each.intended_s for each in starts) - min(each.intended_s for each in starts)
    took_s = max(each.started_s for each in starts) - min(each.intended_s for each in starts)
    return asked_s / took_s if asked_s > 0 else None


def _repeat(measurement: Measurement) -> RepeatFigures:
    good = [record for record in measurement.records if record.succeeded]
    medians = {metric: distribution(values_s(good, metric), [50]) for metric in latencies.METRICS}
    return RepeatFigures(
        seed=measurement.seed,
        duration=measurement.duration_s,
        completed=len(good),
        failed=len(measurement.records) - len(good),
        request_throughput=rate(len(good), measurement.duration_s),
        output_throughput=rate(sum(each.num_output or 0 for each in good), measurement.duration_s),
        median_ms={metric: each.median for metric, each in medians.items() if each is not None},
    )


def _detail(measurements: Sequence[Measurement]) -> Detail:
    records = [record for each in measurements for record in each.records]
    return Detail(
        input_lens=[each.num_input or 0 for each in records],
        output_lens=[each.num_output or 0 for each in records],
        ttfts=[each.ttft_s or 0.0 for each in records],
        ttfots=[each.ttfot_s for each in records],
        itls=[each.gaps_s for each in records],
        latencies=[each.e2e_s for each in records],
        start_times=[each.started_s for each in records],
        queue_times=[each.queue_s for each in records],
        errors=[f"{each.error}: {each.message}" if each.error else "" for each in records],
        cached_lens=[each.num_cached or 0 for each in records],
        repeats=[number for number, each in enumerate(measurements) for _ in each.records],
        request_ids=[each.request_id for each in records],
    )
