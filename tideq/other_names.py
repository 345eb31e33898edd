"""Names of other task libraries, or former names of `tideq`, and what to use instead."""

import difflib
import inspect

OWN_PROCESS = "tq.{0}() is for the whole queue; for this process: handle = tq.start(), then handle.{0}()"

OTHER_NAMES = {
    "Config": 'settings belong to the service; set its URL with tideq.init("http://…", api_key=…) or TIDEQ_URL',
    "TaskQueue": "use tideq.tq, or tideq.Client()",
    "TaskWorker": "use Worker: await tideq.Worker(concurrency=4).run()",
    "get_task": "use tideq.Client().get(task_id)",
    "list_tasks": "use tideq.Client().list(status=…, task_type=…)",
    "pause": OWN_PROCESS.format("pause"),
    "resume": OWN_PROCESS.format("resume"),
    "stats": OWN_PROCESS.format("stats"),
    "submit_task": 'decorate the function with @task and call its submit(…), or use tideq.Client().submit("type", {…})',
}


def explanation(name: str, names: list[str]) -> str:
    """The text of the error for an unknown name."""
    if advice := OTHER_NAMES.get(name):
        return f"tideq has no {name}: {advice}"
    close = difflib.get_close_matches(name, names, n=1)
    return f"module 'tideq' has no attribute {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")


def is_imported_from() -> bool:
    """Whether `from tideq import …` looks up the name: it would replace the text of an AttributeError."""
    frame = inspect.currentframe()
    caller = frame and frame.f_back and frame.f_back.f_back
    return caller is not None and caller.f_code.co_name == "_handle_fromlist"
