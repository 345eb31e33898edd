"""TideQ: a task queue over HTTP. The names for applications.

Names are imported on first use, so that `import tideq` stays quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tideq.application.app_worker import Worker
    from tideq.application.chain import tq
    from tideq.application.connection import init
    from tideq.application.decorator import get_registered_tasks, task
    from tideq.application.in_process import start, stop
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
    "Worker",
    "get_registered_tasks",
    "init",
    "start",
    "stop",
    "task",
    "tq",
]

_NAMES = {
    "tideq.application.chain": ("tq",),
    "tideq.application.connection": ("init",),
    "tideq.application.decorator": ("get_registered_tasks", "task"),
    "tideq.application.in_process": ("start", "stop"),
    "tideq.application.app_worker": ("Worker",),
    "tideq.client": ("AsyncClient", "Client", "TideqError"),
    "tideq.workers.runtime.context": ("TaskContext",),
    "tideq.workers.runtime.failures": ("Discard", "Fail", "Retry"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    from tideq.other_names import OTHER_NAMES, explanation, is_imported_from

    if name in OTHER_NAMES and is_imported_from():
        raise ImportError(explanation(name, __all__))
    raise AttributeError(explanation(name, __all__))
