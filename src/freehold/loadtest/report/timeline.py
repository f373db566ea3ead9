"""Figures of one point over time: what was in flight, how long first tokens took, what the server said of itself."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from freehold.loadtest.report.html import plotted
from freehold.loadtest.report.plot import Line, Plot, Point, thinned
from freehold.loadtest.report.scale import Axis
from freehold.loadtest.results import Detail, PointResult, ServerSample

_NUM_BINS = 60
_LEAST_BIN_S = 0.1
_SLACK_S = 0.05  # the last sample is taken a moment after the last answer
_TIME = Axis("seconds from the beginning")


def timeline(point: PointResult, prefix: str) -> list[str]:
    """Figures of a point. Of several repeats they show the first.

    Args:
        prefix: of the figures' ids, unique in the page.
    """
    drawn: list[str] = []
    if point.detail is not None:
        requests = [index for index, repeat in enumerate(point.detail.repeats) if repeat == point.detail.repeats[0]]
        drawn += _of_requests(point.detail, requests, prefix)
    return drawn + _of_server(_of_first_repeat(point), prefix)


def _of_first_repeat(point: PointResult) -> list[ServerSample]:
    """Samples of the server; those of later repeats follow in the result as if all were one. The first of all was taken
    just before the beginning."""
    end_s = point.repeats[0].duration + _SLACK_S if point.repeats[1:] else math.inf
    return [
        msgspec.structs.replace(each, at_s=max(each.at_s, 0.0)) for each in point.server.timeline if each.at_s <= end_s
    ]


def _of_requests(detail: Detail, requests: Sequence[int], prefix: str) -> list[str]:
    in_flight = _in_flight(detail, requests)
    firsts = [(detail.start_times[index], detail.ttfts[index] * 1000) for index in requests if not detail.errors[index]]
    tokens = _token_rate(detail, requests)
    return [
        plotted(
            Plot("Requests in flight", "Requests sent and not yet ended.", _TIME, Axis("requests"),
                 [Line("in flight", thinned(in_flight, 600), steps=True)]),
            f"{prefix}-in-flight",
        ),
        plotted(
            Plot("TTFT by start", "Each mark is a request: when it was sent, and how long its first token took.", _TIME,
                 Axis("TTFT (ms)"), [Line("TTFT", thinned(sorted(firsts)), marks=True, joined=False)]),
            f"{prefix}-ttft",
        ),
        plotted(
            Plot("Output tokens per second", "Tokens that came, by the time at which they came.", _TIME,
                 Axis("tokens/s"), [Line("tokens/s", tokens, steps=True)]),
            f"{prefix}-tokens",
        ),
    ]  # fmt: skip


def _of_server(samples: Sequence[ServerSample], prefix: str) -> list[str]:
    drawn = []
    cache = _told(samples, lambda sample: None if sample.kv_usage is None else sample.kv_usage * 100)
    if cache:
        plot = Plot("KV cache", "Share of the KV cache in use, as the server's metrics say.", _TIME, Axis("%"),
                    [Line("in use", cache)])  # fmt: skip
        drawn.append(plotted(plot, f"{prefix}-kv"))
    queue = [
        Line(name, points)
        for name, points in (
            ("running", _told(samples, lambda sample: sample.running)),
            ("waiting", _told(samples, lambda sample: sample.waiting)),
        )
        if points
    ]
    if queue:
        plot = Plot("Running and waiting", "Requests inside the server, as its metrics say.", _TIME, Axis("requests"),
                    queue)  # fmt: skip
        drawn.append(plotted(plot, f"{prefix}-queue"))
    return drawn


def _told(samples: Sequence[ServerSample], told: Callable[[ServerSample], float | None]) -> list[Point]:
    return thinned([(sample.at_s, value) for sample in samples if (value := told(sample)) is not None], 600)


def _in_flight(detail: Detail, requests: Sequence[int]) -> list[Point]:
    """How many at each moment at which that changes."""
    changes: Counter[float] = Counter()
    for index in requests:
        changes[detail.start_times[index]] += 1
        changes[detail.start_times[index] + detail.latencies[index]] -= 1
    moments = sorted(changes)
    return list(zip(moments, itertools.accumulate(float(changes[at_s]) for at_s in moments), strict=True))


def _token_rate(detail: Detail, requests: Sequence[int]) -> list[Point]:
    """Tokens a second in bins of equal length. A chunk's tokens are its request's, evenly over its chunks."""
    ends = [detail.start_times[index] + detail.latencies[index] for index in requests]
    whole_s = max(ends, default=0.0)
    width_s = max(whole_s / _NUM_BINS, _LEAST_BIN_S)
    num_bins = math.ceil(whole_s / width_s)
    bins = [0.0] * (num_bins + 1)
    for index in requests:
        if detail.errors[index]:
            continue
        at_s = detail.start_times[index] + detail.ttfts[index]
        gaps = detail.itls[index]
        each = detail.output_lens[index] / (len(gaps) + 1)
        for gap in (0.0, *gaps):
            at_s += gap
            bins[min(math.floor(at_s / width_s), num_bins)] += each
    return [(number * width_s, count / width_s) for number, count in enumerate(bins[:-1])]
