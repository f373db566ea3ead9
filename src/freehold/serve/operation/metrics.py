"""``GET /metrics``: what server and engine count, in Prometheus' text format. docs/metrics.md says what each means.

Names are vLLM's where it has them. Labels have fixed sets of values: the served model, reasons, outcomes, codes, kinds
of tokens, and ids of keys that exist.
"""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from freehold.serve.operation.engine_metrics import engine_families, load_families
from freehold.serve.operation.families import Families
from freehold.serve.operation.request_metrics import (
    answer_families,
    key_families,
    recording_families,
    request_families,
    trace_families,
)
from freehold.serve.service import Service


def gather(service: Service) -> list[Metric]:
    """The numbers as they are now. In the event loop's thread, which changes them."""
    families = Families(service.config.served_model_name)
    counts = service.counts
    return [
        *load_families(families, service),
        *engine_families(families, service.engine.engine.state()),
        *answer_families(families, counts.timings),
        *request_families(families, counts),
        *key_families(counts),
        *trace_families(families, service.tracing),
        *recording_families(families, service.recording),
    ]


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the format that every Prometheus reads. In OpenMetrics 1.0, if that is asked for without UTF-8 names, the library
writes the colons of names as underscores, and nobody would find them."""


def exposition(gathered: Sequence[Metric]) -> bytes:
    """Metrics and the process's own as text. In any thread: with many keys it takes a moment."""
    registry = CollectorRegistry()
    registry.register(_Gathered(gathered))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Gathered(Collector):
    """What was gathered, as the library wants it."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        return self._families
