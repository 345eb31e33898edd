"""Metrics as Prometheus reads them: readings by the name, kind and meaning that `METRICS` gives them.

Each carries the queue's name, so that several queues can be watched by one Prometheus.
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


def exposed(readings: Samples, queue_name: str) -> bytes:
    return generate_latest(_Collected(readings, queue_name))  # type: ignore[arg-type] - all it asks for is collect()


class _Collected:
    """What `generate_latest` asks for metrics."""

    def __init__(self, readings: Samples, queue_name: str) -> None:
        self._readings = readings
        self._queue_name = queue_name

    def collect(self) -> Iterator[Metric]:
        for name in METRICS:
            if name in self._readings:
                yield self._family(name)
        yield from self._consumed()

    def _family(self, name: str) -> Metric:
        metric = METRICS[name]
        family = FAMILIES[metric.kind](name.removesuffix("_total"), metric.meaning, labels=("queue", *metric.labels))
        for others, value in self._readings[name].items():
            labels = (self._queue_name, *others)
            if isinstance(value, SampleHistogram):
                family.add_metric(labels, value.buckets, value.total)
            else:
                family.add_metric(labels, value)
        return family

    def _consumed(self) -> Iterator[Metric]:
        """Time, memory and open files of each process that told something, where the system tells."""
        families: dict[str, Metric] = {}
        for process in sorted(_processes(self._readings)):
            collector = ProcessCollector(namespace="tideq", pid=lambda process=process: process, registry=None)
            labels = {"queue": self._queue_name, "process": process}
            for family in collector.collect():
                kept = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                kept.samples += [sample._replace(labels=labels) for sample in family.samples]
        yield from families.values()


def _processes(readings: Samples) -> set[str]:
    return {labels[0] for name, rows in readings.items() if METRICS[name].labels[:1] == ("process",) for labels in rows}
