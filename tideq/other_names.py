"""Names that other task libraries have, or that `tideq` once had, and what to say instead."""

import difflib
import inspect

OWN_PROCESS = "tq.{0}() is about the whole queue; this process's own is what tq.start() returns: handle.{0}()"

OTHER_NAMES = {
    "Config": 'settings are the service\'s; where it is, say with tideq.init("http://…", api_key=…) or TIDEQ_URL',
    "TaskQueue": "use tideq.tq, or tideq.Client()",
    "TaskWorker": "it is called Worker here: await tideq.Worker(concurrency=4).run()",
    "get_task": "use tideq.Client().get(task_id)",
    "list_tasks": "use tideq.Client().list(status=…, task_type=…)",
    "pause": OWN_PROCESS.format("pause"),
    "resume": OWN_PROCESS.format("resume"),
    "stats": OWN_PROCESS.format("stats"),
    "submit_task": 'decorate the function with @task and call its submit(…), or use tideq.Client().submit("type", {…})',
}


def explanation(name: str, known: list[str]) -> str:
    """Why there is no such name, as far as that is known."""
    if told := OTHER_NAMES.get(name):
        return f"tideq has no {name}: {told}"
    close = difflib.get_close_matches(name, known, n=1)
    return f"module 'tideq' has no attribute {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")


def is_imported_from() -> bool:
    """Whether `from tideq import …` looks for the name, which would drop an AttributeError's words for its own."""
    own = inspect.currentframe()
    looking = own and own.f_back and own.f_back.f_back
    return looking is not None and looking.f_code.co_name == "_handle_fromlist"
