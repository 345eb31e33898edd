"""TideQ: a task queue over HTTP. What people import and type starts here.

Names are fetched when they are first used: `import tideq` stays quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tideq.application.chain import tq
    from tideq.application.connection import init
    from tideq.application.decorator import get_registered_tasks, task
    from tideq.application.in_process import pause, resume, start, stats, stop
    from tideq.client import AsyncClient, Client, TideqError
    from tideq.workers.runtime.context import TaskContext
    from tideq.workers.runtime.failures import Discard, Fail, Retry

__all__ = [
    "AsyncClient",
    "Client",
    "Discard",
    "Fail",
    "Retry",
    "TaskContext",
    "TideqError",
    "get_registered_tasks",
    "init",
    "pause",
    "resume",
    "start",
    "stats",
    "stop",
    "task",
    "tq",
]

_NAMES = {
    "tideq.application.chain": ("tq",),
    "tideq.application.connection": ("init",),
    "tideq.application.decorator": ("get_registered_tasks", "task"),
    "tideq.application.in_process": ("pause", "resume", "start", "stats", "stop"),
    "tideq.client": ("AsyncClient", "Client", "TideqError"),
    "tideq.workers.runtime.context": ("TaskContext",),
    "tideq.workers.runtime.failures": ("Discard", "Fail", "Retry"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
