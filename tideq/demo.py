"""The demo worker of `tideq up`: it says hello and it sleeps, over HTTP, like a worker in any language.

Run as a script, with nothing but the standard library: `demo.py ADDRESS`. On SIGTERM it leaves, and what it holds goes
back to the queue at once. It ends by itself when the process that started it has gone.
"""

import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

THREADS = 4
POLL_SECONDS = 20
ASK_AGAIN_SECONDS = 0.5
STEP_SECONDS = 0.5
MAX_SLEEP_SECONDS = 300

Json = dict[str, Any]
Report = Callable[[float, str], None]


class Refused(Exception):
    """The service's problem document, by the last part of its `type`."""

    def __init__(self, document: Json) -> None:
        self.code = str(document.get("type", "")).rpartition("/")[2]
        super().__init__(self.code)


def hello(parameters: Json, _report: Report) -> Json:
    return {"greeting": f"Hello, {parameters.get('name', 'world')}!"}


def sleep(parameters: Json, report: Report) -> Json:
    """Tells how far it is as it goes, which is also how it hears that nobody wants it any more."""
    seconds = float(parameters.get("seconds", 1))
    if not 0 <= seconds <= MAX_SLEEP_SECONDS:
        raise ValueError(f"seconds must lie between 0 and {MAX_SLEEP_SECONDS}")
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        report(100 * (1 - left / seconds), f"{left:.1f} s to go")
        time.sleep(min(left, STEP_SECONDS))
    return {"slept_seconds": seconds}


HANDLERS: dict[str, Callable[[Json, Report], Json]] = {"hello": hello, "sleep": sleep}


class DemoWorker:
    def __init__(self, address: str) -> None:
        self.is_leaving = threading.Event()
        self._url = f"{address}/internal/workers"
        self._parent = os.getppid()
        self._worker_id = ""
        self._heartbeat_seconds = 10.0
        self._registering = threading.Lock()

    def run(self) -> None:
        """Until told to leave. A waiting thread is not waited for: what it might still be given is not claimed."""
        for _ in range(THREADS):
            threading.Thread(target=self._work, daemon=True).start()
        while not self.is_leaving.wait(self._heartbeat_seconds):
            self._try(lambda: self._tell("heartbeat", {}))
        self._try(lambda: self._call("DELETE", f"/{self._worker_id}"))

    def _work(self) -> None:
        while not self.is_leaving.is_set():
            self._try(self._take_one)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Refused as refusal:
            if refusal.code == "unknown-worker":
                self._worker_id = ""
            time.sleep(ASK_AGAIN_SECONDS)
        except OSError:
            if os.getppid() != self._parent:
                self.is_leaving.set()
            time.sleep(ASK_AGAIN_SECONDS)

    def _take_one(self) -> None:
        self._join()
        answer = self._tell("poll", {"available_capacity": 1, "wait_seconds": POLL_SECONDS})
        for task in answer["tasks"]:
            self._carry_out(task)

    def _join(self) -> None:
        with self._registering:
            if not self._worker_id:
                wanted = {"name": "demo", "task_types": list(HANDLERS), "capacity": THREADS}
                joined = self._call("POST", "/register", wanted)
                self._worker_id = joined["worker_id"]
                self._heartbeat_seconds = joined["heartbeat_interval_ms"] / 1000

    def _carry_out(self, task: Json) -> None:
        held = {"task_id": task["task_id"], "lease": task["lease"]}

        def report(percent: float, message: str) -> None:
            self._tell("progress", {**held, "progress_percent": percent, "status_message": message})

        self._tell("start", held)
        try:
            ended = {"status": "completed", "result": HANDLERS[task["task_type"]](task["parameters"], report)}
        except (TypeError, ValueError) as error:
            ended = {"status": "failed", "error": {"message": str(error), "code": "BAD_INPUT", "retriable": False}}
        self._tell("result", {**held, **ended})

    def _tell(self, verb: str, body: Json) -> Json:
        return self._call("POST", f"/{self._worker_id}/{verb}", body)

    def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, content, method=method)  # noqa: S310 - our own address
        try:
            with urllib.request.urlopen(request, timeout=2 * POLL_SECONDS) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Refused(json.load(error)) from error


def main(address: str) -> None:
    worker = DemoWorker(address)
    signal.signal(signal.SIGTERM, lambda _number, _frame: worker.is_leaving.set())
    worker.run()


if __name__ == "__main__":
    main(sys.argv[1])
