"""One answer of /metrics, read with Prometheus's own parser."""

from collections.abc import Iterator

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

PATH = "/metrics"


class Scrape:
    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples: list[Sample] = [sample for family in self.families.values() for sample in family.samples]

    @property
    def names(self) -> set[str]:
        """What a query can ask for."""
        return {sample.name for sample in self.samples}

    def value(self, name: str, **labels: str) -> float:
        (found,) = [sample.value for sample in self.samples if sample.name == name and _fits(sample, labels)]
        return found

    def values(self, name: str, label: str) -> dict[str, float]:
        return {sample.labels[label]: sample.value for sample in self.samples if sample.name == name}

    def labels(self, label: str) -> Iterator[str]:
        return (sample.labels[label] for sample in self.samples if label in sample.labels)


def _fits(sample: Sample, labels: dict[str, str]) -> bool:
    return all(sample.labels.get(name) == value for name, value in labels.items())


async def scrape(http: httpx.AsyncClient) -> Scrape:
    answer = await http.get(PATH)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scrape(answer.text)
