"""Samples in Prometheus's text format, with the kind and description that `METRICS` gives each name.

Each sample has a `queue` label, so that one Prometheus can scrape several queues.
"""

from collections.abc import Iterator
from typing import Any

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from tideq.queue_core.samples import SampleHistogram, Samples
from tideq.queue_core.telemetry.metrics import METRICS

MEDIA_TYPE = "text/plain; version=0.0.4"
FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
    "gauge_histogram": GaugeHistogramMetricFamily,
}


def exposition(samples: Samples, queue_name: str) -> bytes:
    return generate_latest(_Collector(samples, queue_name))  # type: ignore[arg-type] - it only calls collect()


class _Collector:
    """The collector that `generate_latest` reads."""

    def __init__(self, samples: Samples, queue_name: str) -> None:
        self._samples = samples
        self._queue_name = queue_name

    def collect(self) -> Iterator[Metric]:
        for name in METRICS:
            if name in self._samples:
                yield self._family(name)
        yield from self._process_families()

    def _family(self, name: str) -> Metric:
        metric = METRICS[name]
        family = FAMILIES[metric.kind](name.removesuffix("_total"), metric.meaning, labels=("queue", *metric.labels))
        for others, value in self._samples[name].items():
            labels = (self._queue_name, *others)
            if isinstance(value, SampleHistogram):
                family.add_metric(labels, value.buckets, value.total)
            else:
                family.add_metric(labels, value)
        return family

    def _process_families(self) -> Iterator[Metric]:
        """CPU time, memory and open files of each process with samples, on systems with /proc."""
        families: dict[str, Metric] = {}
        for process in sorted(_processes(self._samples)):
            collector = ProcessCollector(namespace="tideq", pid=lambda process=process: process, registry=None)
            labels = {"queue": self._queue_name, "process": process}
            for family in collector.collect():
                kept = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                kept.samples += [sample._replace(labels=labels) for sample in family.samples]
        yield from families.values()


def _processes(samples: Samples) -> set[str]:
    return {labels[0] for name, rows in samples.items() if METRICS[name].labels[:1] == ("process",) for labels in rows}
