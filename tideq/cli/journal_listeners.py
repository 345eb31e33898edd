"""The listeners of the transition journal besides the metrics: the log and, where tracing is on, lifecycle spans."""

import contextlib
import sys
from collections.abc import Generator

from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.telemetry.spans import Tracing
from tideq.telemetry.line_writer import LineWriter
from tideq.workers.monitor.journal.follower import TransitionListener
from tideq.workers.monitor.journal.lifecycle_spans import LifecycleSpans
from tideq.workers.monitor.journal.transition_log import TransitionLog


@contextlib.contextmanager
def open_listeners(settings: QueueSettings, tracing: Tracing | None) -> Generator[list[TransitionListener]]:
    listeners = list[TransitionListener]()
    with contextlib.ExitStack() as opened:
        if tracing is not None:
            listeners.append(LifecycleSpans(tracing, settings.queue_name))
        if settings.telemetry.logs_transitions:
            writer = opened.enter_context(LineWriter(sys.stderr))
            listeners.append(TransitionLog(writer.write, readable=sys.stderr.isatty()))
        yield listeners
