"""The SDK's batch processor, with a bound that counts what it drops and an end that takes a limited time.

A collector that is away, slow or hangs costs the spans that do not fit into the queue. Who records a span never waits.
"""

import os
import threading
from collections import deque
from collections.abc import Sequence

import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

CLOSE_SECONDS = 2.0

log = structlog.get_logger("tideq.telemetry")


class SpanQueue(BatchSpanProcessor):
    def __init__(
        self, exporters: Sequence[SpanExporter], max_span_count: int, batch_size: int, delay_ms: float
    ) -> None:
        self.dropped_count = 0
        """For want of room."""
        self.sender = Sender(exporters)
        self._max_span_count = max_span_count
        super().__init__(self.sender, max_span_count, delay_ms, batch_size)

    @property
    def has_room(self) -> bool:
        return len(self.sender.waiting) < self._max_span_count

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self.has_room:
            self.sender.waiting.append(None)
            super().on_end(span)
        else:
            # The SDK would make room by dropping the oldest span, and would not count it.
            self.dropped_count += 1

    def shutdown(self) -> None:
        self.close(CLOSE_SECONDS)

    def close(self, seconds: float) -> None:
        """Sends what waits, as far as the time allows; the SDK's own end waits for 30 seconds."""
        self._max_span_count = 0
        ending = threading.Thread(target=super().shutdown, name="tideq-telemetry-end", daemon=True)
        ending.start()
        ending.join(seconds)
        if ending.is_alive():
            self.sender.shutdown()
            log.warning("spans left behind: the collector does not take them", waiting=len(self.sender.waiting))


class Sender(SpanExporter):
    """Sends each batch with every exporter, counts its spans, and logs the first failure and the recovery."""

    def __init__(self, exporters: Sequence[SpanExporter]) -> None:
        self.waiting = deque[None]()
        """An entry for each span that was taken and has not reached this exporter: a count that needs no lock."""
        self.sent_count = 0
        self.failed_count = 0
        self._exporters = exporters
        self._is_failing = self._is_closed = False
        if hasattr(os, "register_at_fork"):
            # The SDK leaves a forked child an empty queue.
            os.register_at_fork(after_in_child=self.waiting.clear)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for _ in spans:
            self.waiting.popleft()
        outcomes = [not self._is_closed and _is_sent(exporter, spans) for exporter in self._exporters]
        is_sent = all(outcomes)
        if is_sent:
            self.sent_count += len(spans)
        else:
            self.failed_count += len(spans)
        if is_sent == self._is_failing:
            self._is_failing = not is_sent
            log.warning("spans are delivered again" if is_sent else "spans cannot be delivered and are dropped")
        return SpanExportResult.SUCCESS if is_sent else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Also ends the exporters' pauses between their attempts."""
        if not self._is_closed:
            self._is_closed = True
            for exporter in self._exporters:
                exporter.shutdown()


def _is_sent(exporter: SpanExporter, spans: Sequence[ReadableSpan]) -> bool:
    try:
        return exporter.export(spans) is SpanExportResult.SUCCESS
    except Exception as error:
        log.warning("exporter failed", error=f"{type(error).__name__}: {error}")
        return False
