"""One warning where a worker was set and this process runs none: otherwise nothing would happen, and nothing say so."""

import logging
import threading

from tideq.workers.runtime.registry import has_begun

PATIENCE_SECONDS = 5.0

log = logging.getLogger(__name__)

_once = threading.Lock()
"""Never released: one reminder a process."""


def remind_to_begin(task_type: str) -> None:
    """Unless a worker begins soon. Asked again, it does nothing."""
    if not has_begun.is_set() and _once.acquire(blocking=False):
        threading.Thread(target=warn_unless_begun, args=(task_type,), name="tideq-reminder", daemon=True).start()


def warn_unless_begun(task_type: str) -> None:
    if not has_begun.wait(PATIENCE_SECONDS) and threading.main_thread().is_alive():
        log.warning(
            "a worker was set for %s, and this process runs none: call tq.start(), "
            "or run `tideq worker --handlers <module>` (it may run elsewhere already; this is said once)",
            task_type,
        )
