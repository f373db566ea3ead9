"""Reads what a server says at ``/metrics``."""

from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.server.running import Server


@dataclass
class Metrics:
    """One answer of ``/metrics``.

    Attributes:
        families: by name.
        values: by the sample's name and the values of its labels, those of the model and the engine left out.
    """

    families: dict[str, Metric]
    values: dict[tuple[str, ...], float]

    def __getitem__(self, key: str | tuple[str, ...]) -> float:
        return self.values[(key,) if isinstance(key, str) else key]

    def all_of(self, name: str) -> dict[str, float]:
        """Samples of one name, by their one more label."""
        return {key[1]: value for key, value in self.values.items() if key[0] == name}

    def buckets(self, name: str) -> list[float]:
        """Upper bounds of a histogram's buckets, the last of which has none."""
        return [float(bound) for bound in self.all_of(f"{name}_bucket")]


def scrape(server: Server, headers: dict[str, str] | None = None) -> Metrics:
    """Ask a server."""
    answer = server.http.get("/metrics", headers=headers)
    assert answer.status_code == 200
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    values = {
        (sample.name, *(v for name, v in sample.labels.items() if name not in {"model_name", "engine"})): sample.value
        for family in families.values()
        for sample in family.samples
    }
    return Metrics(families, values)
