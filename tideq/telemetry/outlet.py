"""The outlet: spans wait in a bounded queue for a thread that sends them. Who records one never waits.

A collector that is away, slow or hangs costs what does not fit into the queue: it is dropped and counted. Leaving takes
a limited time, whatever the collector does.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tideq.queue_core.telemetry.names import SCOPE
from tideq.queue_core.telemetry.spans import Span
from tideq.telemetry.otlp_encoding import field, key_value, request, span_field
from tideq.telemetry.sdk_spans import readable

QUEUE_SIZE, BATCH_SIZE, DELAY_MS = 8_192, 2_048, 5_000
"""To send 512 spans takes 0.75 ms of CPU, 2 048 take 1.1: most of it goes into the request, whatever is in it."""
CLOSE_SECONDS = 2.0
SCOPE_MESSAGE = field(1, SCOPE.encode())

log = structlog.get_logger("tideq.telemetry")


class SpanQueue(SpanProcessor):
    """Takes spans of ours and, as a processor of the SDK's, those that applications make.

    Ours are encoded where they are sent, a batch in one go: 2 µs each. A submission's two spans cost 17 µs that way, 28
    where the thread let others work after every 256, and more where each was encoded when it was taken.
    """

    def __init__(self, exporters: Sequence[SpanExporter], resource: Resource, environ: Mapping[str, str]) -> None:
        self.sent_count = 0
        self.dropped_count = 0
        """For want of room."""
        self.failed_count = 0
        """Sent in vain."""
        self._exporters = exporters
        self.resource = resource
        self._resource_message = resource_message(resource)
        self._queue_size = _number(environ, "OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SIZE)
        self._batch_size = min(_number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_SIZE), self._queue_size)
        self._delay_seconds = _number(environ, "OTEL_BSP_SCHEDULE_DELAY", DELAY_MS) / 1000
        self._ring_at = min(self._batch_size, self._queue_size // 2 + 1)
        """Before it is full: whoever sends needs a moment to come."""
        self._queue: deque[Span | ReadableSpan] = deque()
        self._bell, self._is_empty = threading.Event(), threading.Event()
        self._is_closing = self._is_hurried = self._is_failing = False
        self._thread = threading.Thread(target=self._work, name="tideq-telemetry", daemon=True)
        self._thread.start()

    @property
    def waiting_count(self) -> int:
        return len(self._queue)

    @property
    def has_room(self) -> bool:
        return len(self._queue) < self._queue_size

    def take(self, span: Span | ReadableSpan) -> None:
        queue = self._queue
        if len(queue) >= self._queue_size:
            self.dropped_count += 1
            return
        queue.append(span)
        if len(queue) >= self._ring_at and not self._bell.is_set():
            self._bell.set()

    def on_end(self, span: ReadableSpan) -> None:
        """The SDK's spans."""
        context = span.context
        if context is not None and context.trace_flags.sampled:
            self.take(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self._is_empty.clear()
        self._is_hurried = True
        self._bell.set()
        return self._is_empty.wait(timeout_millis / 1000)

    def shutdown(self) -> None:
        self.close(CLOSE_SECONDS)

    def close(self, seconds: float) -> None:
        """Send what waits, as far as the time allows."""
        self._is_closing, self._queue_size = True, 0
        self._bell.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            log.warning("spans left behind: the collector does not take them", waiting=self.waiting_count)

    def _work(self) -> None:
        while not self._is_closing:
            is_due = not self._bell.wait(self._delay_seconds)
            self._bell.clear()
            if is_due or self._is_hurried:
                self._is_hurried = False
                self._send_all()
            else:
                self._send_down_to(self._ring_at)
        self._send_all()
        for exporter in self._exporters:
            exporter.shutdown()

    def _send_all(self) -> None:
        self._send_down_to(1)
        self._is_empty.set()

    def _send_down_to(self, least: int) -> None:
        """Until fewer wait. What came while a batch was sent is none yet: sent at once, batches had 200 spans."""
        queue = self._queue
        while len(queue) >= least:
            self._send([queue.popleft() for _ in range(min(len(queue), self._batch_size))])

    def _send(self, batch: Sequence[Span | ReadableSpan]) -> None:
        outcomes = [self._send_with(exporter, batch) for exporter in self._exporters]
        is_sent = all(outcomes)
        if is_sent:
            self.sent_count += len(batch)
        else:
            self.failed_count += len(batch)
        if is_sent == self._is_failing:
            self._is_failing = not is_sent
            log.warning("spans are delivered again" if is_sent else "spans cannot be delivered and are dropped")

    def _send_with(self, exporter: SpanExporter, batch: Sequence[Span | ReadableSpan]) -> bool:
        ours = [span for span in batch if isinstance(span, Span)]
        theirs = [span for span in batch if not isinstance(span, Span)]
        try:
            return (not ours or self._send_ours(exporter, ours)) and (not theirs or _export(exporter, theirs))
        except Exception as error:
            log.warning("exporter failed", error=f"{type(error).__name__}: {error}")
            return False

    def _send_ours(self, exporter: SpanExporter, spans: Sequence[Span]) -> bool:
        post = poster(exporter)
        if post is None:
            return _export(exporter, [readable(span, self.resource) for span in spans])
        return bool(post(request(self._resource_message, SCOPE_MESSAGE, map(span_field, spans))).success)


def poster(exporter: SpanExporter) -> Any:
    """How the exporter for OTLP over HTTP sends what it has encoded: with its headers, certificates and patience."""
    client = getattr(exporter, "_client", None)
    return getattr(client, "export", None)


def resource_message(resource: Resource) -> bytes:
    values = {key: value if isinstance(value, int) else str(value) for key, value in resource.attributes.items()}
    return b"".join(field(1, key_value(key, value)) for key, value in values.items())


def _export(exporter: SpanExporter, spans: Sequence[ReadableSpan]) -> bool:
    return exporter.export(spans) is SpanExportResult.SUCCESS


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    """As the SDK takes them: what is no number is as good as unset."""
    text = environ.get(name, "").strip()
    return max(int(text), 1) if text.isdigit() else default
