"""Sets up tracing from OpenTelemetry's own environment variables; off unless one of them names a collector.

The SDK is imported inside functions: the import takes a third of a second, and most processes do not need it.
"""

import contextlib
import logging
import os
import random
import socket
from collections.abc import Generator, Mapping, Sequence
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING, Any

from tideq.queue_core.settings import SettingsError

if TYPE_CHECKING:
    from tideq.telemetry.otel_tracing import OtelTracing

EXPORTERS = "OTEL_TRACES_EXPORTER"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
SAMPLER = "OTEL_TRACES_SAMPLER"
MAX_SPAN_COUNT, BATCH_SIZE, DELAY_MS = 8_192, 512, 5_000
"""The SDK's own, but for a queue that has room for the spans of a batch of a thousand tasks."""
OTLP_NAMES = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def is_traced(environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = environ.get(EXPORTERS, "").strip().lower()
    return exporters != "none" if exporters else any(environ.get(name) for name in ENDPOINTS)


@contextlib.contextmanager
def tracing_from(
    environ: Mapping[str, str], traces_per_second: float, service_name: str, *, is_fixed: bool = False
) -> "Generator[OtelTracing | None]":
    """None where tracing is off. At the end, waiting spans are sent for a short, limited time."""
    if not is_traced(environ):
        yield None
        return
    tracing = make_tracing(environ, traces_per_second, service_name, is_fixed=is_fixed)
    try:
        yield tracing
    finally:
        tracing.close()


def make_tracing(
    environ: Mapping[str, str], traces_per_second: float, service_name: str, *, is_fixed: bool = False
) -> "OtelTracing":
    from tideq.telemetry.otel_tracing import OtelTracing, TracesPerSecond
    from tideq.telemetry.span_queue import SpanQueue

    _silence_the_sdk()
    max_span_count = _number(environ, "OTEL_BSP_MAX_QUEUE_SIZE", MAX_SPAN_COUNT)
    batch_size = min(_number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_SIZE), max_span_count)
    delay_ms = _number(environ, "OTEL_BSP_SCHEDULE_DELAY", DELAY_MS)
    queue = SpanQueue(_exporters(environ), max_span_count, batch_size, delay_ms)
    limit = None if environ.get(SAMPLER, "").strip() else TracesPerSecond(traces_per_second)
    return OtelTracing(queue, make_resource(service_name, is_fixed=is_fixed), limit)


def make_resource(service_name: str, *, is_fixed: bool = False) -> Any:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence over the values found here.

    A fixed name takes precedence over both: it is used for spans that this process records for another service.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = {
        "service.name": service_name,
        "service.version": version("tideq"),
        "host.name": socket.gethostname(),
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}:{random.getrandbits(32):08x}",
    }
    found = Resource.create(ours).merge(OTELResourceDetector().detect())
    return found.merge(Resource({"service.name": service_name})) if is_fixed else found


def _exporters(environ: Mapping[str, str]) -> Sequence[Any]:
    names = [name.strip().lower() for name in (environ.get(EXPORTERS) or "otlp").split(",") if name.strip()]
    return [_exporter(_entry_point_name(name, environ)) for name in names if name != "none"]


def _entry_point_name(name: str, environ: Mapping[str, str]) -> str:
    if name != "otlp":
        return name
    protocol = next((environ[each].strip() for each in PROTOCOLS if environ.get(each)), "http/protobuf")
    if protocol not in OTLP_NAMES:
        raise SettingsError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r} must be one of {', '.join(OTLP_NAMES)}")
    return OTLP_NAMES[protocol]


def _exporter(name: str) -> Any:
    found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
    if not found:
        hint = "; install tideq[grpc]" if name == OTLP_NAMES["grpc"] else ""
        raise SettingsError(f"{EXPORTERS}: the exporter {name!r} is not installed{hint}")
    return found[0].load()()


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    """What is no number is as good as unset, as for the SDK."""
    text = environ.get(name, "").strip()
    return max(int(text), 1) if text.isdigit() else default


def _silence_the_sdk() -> None:
    """The SDK logs every failed batch in its own format; the span queue logs the first failure and the recovery."""
    logger = logging.getLogger("opentelemetry")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
