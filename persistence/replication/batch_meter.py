"""Metrics of replication: batches, events, and their delay."""

import time

from tideq.persistence.replication.writer import WriteBatch
from tideq.queue_core.samples import Counters
from tideq.queue_core.telemetry.metrics import LONG_SECONDS


class BatchMeter:
    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        counters.declare("tideq_replicated_batches_total", ())
        counters.declare("tideq_replicated_events_total", ())
        self._delays = counters.histogram("tideq_replication_delay_seconds", (), LONG_SECONDS)

    def note(self, batch: WriteBatch) -> None:
        """Limit: the delay compares this machine's clock with the store's."""
        self._counters.add("tideq_replicated_batches_total")
        self._counters.add("tideq_replicated_events_total", amount=len(batch.changes))
        self._delays.note(max(time.time() - batch.after.now_ms / 1000, 0.0))
