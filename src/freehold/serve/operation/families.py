"""Makes the families of samples that `/metrics` consists of. All of them name the served model, and the engine."""

from collections.abc import Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.utils import floatToGoString

from freehold.observe.histogram import Histogram

MODEL = ("model_name", "engine")


class Families:
    """Of one served model.

    Args:
        model_name: the name that answers bear.
    """

    def __init__(self, model_name: str) -> None:
        self._model = (model_name, "0")

    def gauge(self, name: str, text: str, value: float) -> Metric:
        """One number that goes up and down."""
        family = GaugeMetricFamily(name, text, labels=MODEL)
        family.add_metric(self._model, value)
        return family

    def gauges(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        """Several, by one label."""
        family = GaugeMetricFamily(name, text, labels=(*MODEL, label))
        for value, number in values.items():
            family.add_metric((*self._model, value), number)
        return family

    def info(self, name: str, text: str, facts: Mapping[str, str]) -> Metric:
        """Facts as labels of a 1."""
        family = GaugeMetricFamily(name, text, labels=(*MODEL, *facts))
        family.add_metric((*self._model, *facts.values()), 1)
        return family

    def counter(self, name: str, text: str, value: float) -> Metric:
        """
        Args:
            name: ``_total`` is added to it.
        """
        family = CounterMetricFamily(name, text, labels=MODEL)
        family.add_metric(self._model, value)
        return family

    def counters(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        """Several, by one label."""
        family = CounterMetricFamily(name, text, labels=(*MODEL, label))
        for value, number in values.items():
            family.add_metric((*self._model, value), number)
        return family

    def summaries(self, name: str, text: str, label: str, sums: Mapping[str, float], num: int) -> Metric:
        """Sums of as many values each, by one label."""
        family = SummaryMetricFamily(name, text, labels=(*MODEL, label))
        for value, total in sums.items():
            family.add_metric((*self._model, value), num, total)
        return family

    def histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        """
        Args:
            name: ``_bucket``, ``_sum`` and ``_count`` are added to it.
        """
        bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
        family = HistogramMetricFamily(name, text, labels=MODEL)
        buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
        family.add_metric(self._model, buckets, histogram.total)
        return family
