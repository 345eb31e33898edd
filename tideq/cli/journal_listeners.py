"""Who hears what the journal tells, besides the metrics: the log, and traces where somebody collects them."""

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
def telling(settings: QueueSettings, tracing: Tracing | None) -> Generator[list[TransitionListener]]:
    listeners = list[TransitionListener]()
    with contextlib.ExitStack() as open_while_told:
        if tracing is not None:
            listeners.append(LifecycleSpans(tracing, settings.queue_name))
        if settings.telemetry.logs_transitions:
            writer = open_while_told.enter_context(LineWriter(sys.stderr))
            listeners.append(TransitionLog(writer.write, for_people=sys.stderr.isatty()))
        yield listeners
