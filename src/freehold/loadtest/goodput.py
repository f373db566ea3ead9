"""Goodput: requests that succeed and meet every limit."""

from collections.abc import Mapping, Sequence

from freehold.errors import ConfigError, shown
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Goodput, Metric

LIMITED: tuple[Metric, ...] = ("ttft", "ttfot", "tpot", "e2el")


def read_limits(texts: Sequence[str]) -> dict[Metric, float]:
    """Limits in ms as ``--goodput`` has them: ``ttft:200 tpot:50 e2el:5000``.

    Raises:
        ConfigError: an unknown metric, or no positive, finite number.
    """
    limits: dict[Metric, float] = {}
    for text in " ".join(texts).replace(",", " ").split():
        name, _, number = text.partition(":")
        metric = next((each for each in LIMITED if each == name), None)
        try:
            limit = float(number)
        except ValueError:
            limit = 0.0
        if metric is None or not 0 < limit < float("inf"):
            raise ConfigError(f"--goodput can't be {shown(text)}; write ms as in ttft:200, for {', '.join(LIMITED)}")
        limits[metric] = limit
    return limits


def goodput(records: Sequence[RequestRecord], duration_s: float, limits_ms: Mapping[Metric, float]) -> Goodput:
    """How many requests a second were good.

    TTFT and the end count from the intended start, as users wait from then on. An answer of one token has a TPOT of 0,
    as in vLLM. A limit on a latency that a successful request doesn't have (TTFT without streaming, TPOT without a
    token count) is missed.
    """
    missed = dict.fromkeys(limits_ms, 0)
    num_good = 0
    for record in records:
        if not record.succeeded:
            continue
        late = [metric for metric, limit in limits_ms.items() if not _value_ms(record, metric) <= limit]
        for metric in late:
            missed[metric] += 1
        num_good += not late
    return Goodput(
        limits_ms={str(metric): limit for metric, limit in limits_ms.items()},
        num_good=num_good,
        fraction=num_good / len(records) if records else 0.0,
        requests_per_s=num_good / duration_s if duration_s > 0 else 0.0,
        missed={str(metric): number for metric, number in missed.items()},
    )


def _value_ms(record: RequestRecord, metric: Metric) -> float:
    """A latency as limits mean it; infinite if there is none."""
    value: float | None
    if metric == "tpot":
        value = 0.0 if record.num_output == 1 else record.tpot_s
    elif metric == "e2el":
        value = record.ended_s - record.intended_s
    else:
        came_s = record.first_s if metric == "ttft" else record.first_output_s
        value = None if came_s is None else came_s - record.intended_s
    return float("inf") if value is None else value * 1000
