"""A worker that runs tasks in the calling thread, one at a time, so that a test sees everything happen in order."""

import asyncio
import http.client
import inspect
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.execution import encode_result
from tideq.workers.runtime.failures import error_document
from tideq.workers.runtime.handlers import Handler, Handlers
from tideq.workers.runtime.protocol import Answer, GivenTask, decode_answer


class InlineWorker:
    def __init__(self, url: str, handlers: Handlers) -> None:
        self._handlers = handlers
        self._http = http.client.HTTPConnection(urlsplit(url).netloc)
        task_types = [handler.task_type for handler in handlers]
        if not task_types:
            raise ValueError("there is no handler to run: decorate a function with @task, or give tq(…) a worker")
        registration = self._call("register", {"task_types": task_types, "name": "testing"})
        self._worker_id: str = msgspec.json.decode(registration)["worker_id"]

    def run(self, limit: int) -> Iterator[str]:
        """Until nothing is ready; gives the ids, each as soon as its task has ended or waits again."""
        for _ in range(limit):
            tasks = self._ask("poll", {"available_capacity": 1}).tasks
            if not tasks:
                return
            self._run(tasks[0])
            yield tasks[0].task_id

    def leave(self) -> None:
        self._http.request("DELETE", f"/internal/workers/{self._worker_id}")
        self._http.getresponse().read()
        self._http.close()

    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None:
        report = {"task_id": task_id, "lease": lease, "progress_percent": percent, "status_message": message}
        self._tell("progress", report)

    def extend(self, task_id: str, lease: str, seconds: float) -> None:
        self._tell("extend", {"task_id": task_id, "lease": lease, "seconds": seconds})

    def _run(self, task: GivenTask) -> None:
        handler = self._handlers.get(task.task_type)
        assert handler is not None
        self._tell("start", {"task_id": task.task_id, "lease": task.lease})
        context = TaskContext(task.task_id, task.task_type, task.attempt, task.lease, task.timeout_seconds, self)
        self._tell("result", {"task_id": task.task_id, "lease": task.lease, **_outcome(handler, task, context)})

    def _ask(self, verb: str, body: Any) -> Answer:
        return decode_answer(self._tell(verb, body))

    def _tell(self, verb: str, body: Any) -> bytes:
        return self._call(f"{self._worker_id}/{verb}", body)

    def _call(self, path: str, body: Any) -> bytes:
        headers = {"content-type": "application/json"}
        self._http.request("POST", f"/internal/workers/{path}", msgspec.json.encode(body), headers)
        response = self._http.getresponse()
        content = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{path}: {content.decode()}")
        return content


def _outcome(handler: Handler, task: GivenTask, context: TaskContext) -> dict[str, Any]:
    try:
        value = handler.function(**handler.arguments(bytes(task.parameters), context))
        result = encode_result(asyncio.run(value) if inspect.iscoroutine(value) else value)
        return {"status": "completed", "result": msgspec.Raw(result)}
    except Exception as error:
        return {"status": "failed", "error": msgspec.Raw(error_document(error))}
