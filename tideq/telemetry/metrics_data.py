"""Readings as the SDK's own data, for its exporters."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tideq.queue_core.samples import Labels, Sample, SampleHistogram, Samples
from tideq.queue_core.telemetry import names as telemetry
from tideq.queue_core.telemetry.metrics import METRICS

CUMULATIVE = AggregationTemporality.CUMULATIVE
UNITS = {"_seconds": "s", "_bytes": "By", "_ratio": "1"}


class Alias(NamedTuple):
    """A metric under the name the messaging conventions have for it."""

    metric: str
    operation: str
    only: Mapping[str, str] = {}
    """Where its labels have these values."""


ALIASES = {
    telemetry.MESSAGING_SENT: Alias("tideq_tasks_submitted_total", telemetry.SEND),
    telemetry.MESSAGING_CONSUMED: Alias("tideq_tasks_claimed_total", telemetry.RECEIVE),
    telemetry.MESSAGING_OPERATION_DURATION: Alias("tideq_claim_duration_seconds", telemetry.RECEIVE),
    telemetry.MESSAGING_PROCESS_DURATION: Alias(
        "tideq_task_state_duration_seconds", telemetry.PROCESS, {"state": "executing"}
    ),
}


class Translation:
    def __init__(self, resource: Resource, queue_name: str) -> None:
        self._resource = resource
        self._queue_name = queue_name
        self._began_ns = time.time_ns()

    def data(self, readings: Samples) -> MetricsData:
        metrics = [*self._own(readings), *self._conventional(readings)]
        scope = ScopeMetrics(InstrumentationScope(telemetry.SCOPE), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _own(self, readings: Samples) -> Iterator[Metric]:
        for name, rows in readings.items():
            labels = METRICS[name].labels
            points = [({"queue": self._queue_name, **_named(labels, values)}, value) for values, value in rows.items()]
            yield self._metric(name, METRICS[name].kind, METRICS[name].meaning, points)

    def _conventional(self, readings: Samples) -> Iterator[Metric]:
        for name, alias in ALIASES.items():
            metric, rows = METRICS[alias.metric], readings.get(alias.metric, {})
            kept = [(_named(metric.labels, values), value) for values, value in rows.items()]
            points = [
                (self._messaging(alias, labels), value)
                for labels, value in kept
                if alias.only.items() <= labels.items()
            ]
            if points:
                yield self._metric(name, metric.kind, metric.meaning, points, _unit(alias.metric))

    def _messaging(self, alias: Alias, labels: Mapping[str, str]) -> dict[str, str]:
        told = {
            telemetry.MESSAGING_SYSTEM: telemetry.SYSTEM,
            telemetry.MESSAGING_OPERATION_NAME: alias.operation,
            telemetry.MESSAGING_DESTINATION: self._queue_name,
        }
        return {**told, **{f"tideq.{name}": value for name, value in labels.items() if name not in alias.only}}

    def _metric(
        self, name: str, kind: str, meaning: str, points: list[tuple[dict[str, str], Sample]], unit: str | None = None
    ) -> Metric:
        now_ns, began_ns = time.time_ns(), self._began_ns
        unit = _unit(name) if unit is None else unit
        if kind == "histogram":
            told = [
                _histogram_point(labels, value, began_ns, now_ns)
                for labels, value in points
                if isinstance(value, SampleHistogram)
            ]
            return Metric(name, meaning, unit, Histogram(told, CUMULATIVE))
        numbers = [
            NumberDataPoint(labels, began_ns, now_ns, number)
            for labels, value in points
            for labels, number in _numbers(labels, value)
        ]
        if kind == "counter":
            return Metric(name.removesuffix("_total"), meaning, unit, Sum(numbers, CUMULATIVE, is_monotonic=True))
        return Metric(name, meaning, unit, Gauge(numbers))


def _named(names: tuple[str, ...], values: Labels) -> dict[str, str]:
    return dict(zip(names, values, strict=True))


def _numbers(labels: dict[str, str], value: Sample) -> list[tuple[dict[str, str], float]]:
    """A distribution of what is there now has no form of its own: its buckets become numbers, as in Prometheus."""
    if isinstance(value, SampleHistogram):
        return [({**labels, "le": bound}, count) for bound, count in value.buckets]
    return [(labels, value)]


def _histogram_point(labels: dict[str, str], value: SampleHistogram, began_ns: int, now_ns: int) -> HistogramDataPoint:
    """Neither the least nor the greatest is known: both are left out, as OTLP allows."""
    unknown: Any = None
    return HistogramDataPoint(
        labels, began_ns, now_ns, value.count, value.total, list(value.counts), list(value.bounds), unknown, unknown
    )


def _unit(name: str) -> str:
    return next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")
