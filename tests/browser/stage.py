"""The real service with a real worker, and what a test needs to know of them."""

import os
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from tests.api.running import START_SECONDS, TIDEQ

ROOT = Path(__file__).parents[2]
READY = "Ctrl-C stops it"
TRACES = "http://traces.example.com"
WAIT_SECONDS = 60
CIRCUIT_FAILURES = 100
Json = dict[str, Any]


class Stage(msgspec.Struct, frozen=True):
    url: str
    folder: Path
    """Where handlers look for the signs a test gives."""
    http: httpx.Client

    def call(self, method: str, path: str, body: Any = None) -> Json:
        answer = self.http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def submit(self, task_type: str, parameters: Any = None, **fields: Any) -> str:
        body: Json = {"task_type": task_type, "parameters": parameters or {}, **fields}
        return self.call("POST", "/api/v1/tasks", body)["task_id"]

    def submit_many(self, task_type: str, count: int, **fields: Any) -> None:
        tasks = [{"task_type": task_type, "parameters": {"number": number}, **fields} for number in range(count)]
        self.call("POST", "/api/v1/tasks/batch", {"tasks": tasks})

    def count(self, **query: str) -> int:
        return self.call("GET", f"/api/v1/tasks?{httpx.QueryParams({**query, 'count': 'true', 'limit': '1'})}")["total"]

    def wait(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)


@contextmanager
def staged(folder: Path) -> Generator[Stage]:
    """`tideq up` without its demo, and `tideq worker` with the handlers of these tests."""
    ours = ("TIDEQ_", "REDIS_", "DATABASE_")
    environ = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    # Tests fail tasks by the dozen on purpose: the worker must not be shut off for it.
    environ |= {"BROWSER_TESTS_FOLDER": str(folder), "PYTHONPATH": str(ROOT)}
    environ["TIDEQ_CIRCUIT_FAILURES"] = str(CIRCUIT_FAILURES)
    environ["TIDEQ_MAX_NEW_LANES_PER_DAY"] = "2000"  # its tests make types of their own, hundreds in one service
    environ["TIDEQ_TRACE_URL_TEMPLATE"] = f"{TRACES}/{{trace_id}}"
    up = [TIDEQ, "up", "--port", "0", "--data-dir", str(folder / "data"), "--no-demo"]
    with _process(up, environ, folder / "up.log") as service:
        url = _wait_for(service, folder / "up.log", READY).partition("TideQ answers at ")[2].split()[0]
        worker = [TIDEQ, "worker", "--handlers", "tests.browser.handlers", "--url", url, "--drain-seconds", "1"]
        with (
            _process(worker, environ, folder / "worker.log") as working,
            httpx.Client(base_url=url, timeout=40) as http,
        ):
            _wait_for(working, folder / "worker.log", "registered")
            yield Stage(url, folder, http)


@contextmanager
def _process(command: list[str], environ: dict[str, str], log: Path) -> Generator[subprocess.Popen[bytes]]:
    with log.open("w") as said:
        process = subprocess.Popen(command, env=environ, stdout=said, stderr=subprocess.STDOUT, cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], log: Path, words: str) -> str:
    deadline = time.monotonic() + 3 * START_SECONDS
    while words not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    return log.read_text()
