"""Warns once where a handler was set and this process starts no worker: its tasks would wait without a hint."""

import logging
import threading

from tideq.workers.runtime.registry import has_started

WAIT_SECONDS = 5.0

log = logging.getLogger(__name__)

_once = threading.Lock()
"""Never released: one warning for each process."""


def warn_later(task_type: str) -> None:
    """Warns unless a worker starts within WAIT_SECONDS. Further calls do nothing."""
    if not has_started.is_set() and _once.acquire(blocking=False):
        threading.Thread(target=warn_unless_started, args=(task_type,), name="tideq-reminder", daemon=True).start()


def warn_unless_started(task_type: str) -> None:
    if not has_started.wait(WAIT_SECONDS) and threading.main_thread().is_alive():
        log.warning(
            "a handler was set for %s, but no worker runs in this process: call tq.start(), "
            "or run `tideq worker --handlers <module>` (ignore this where it runs elsewhere; logged once)",
            task_type,
        )
