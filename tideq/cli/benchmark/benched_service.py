"""The service that a run measures: its state, the run's tasks in it, and one started for a run alone."""

import contextlib
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import msgspec

from tideq.cli.benchmark.children import BenchTarget
from tideq.cli.benchmark.processes import GaveUp
from tideq.client import Client, Limit, TideqError
from tideq.client.calls.base import answers, get, params
from tideq.client.models.tasks import TaskOptions

PREFIX = "tideq.bench."
CPU = re.compile(rb"^tideq_process_cpu_seconds_total\S* (\S+)", re.MULTILINE)
CLEAN_UP_SECONDS = 60.0
LOOK_SECONDS = 0.2
GREETING = re.compile(r"TideQ answers at (\S+)\s")
START_SECONDS = 90.0
STOP_SECONDS = 20.0
OTHERS = ("TIDEQ_", "REDIS_", "DATABASE_", "OTEL_")
MUCH = "100000000"
SETTINGS = {
    "TIDEQ_DEPTH_REFUSE_LOW": MUCH,
    "TIDEQ_DEPTH_REFUSE_MEDIUM": MUCH,
    "TIDEQ_DEPTH_REFUSE_ALL": MUCH,
    "TIDEQ_MAX_OUTBOX_ENTRIES": MUCH,
    "TIDEQ_LOG_TRANSITIONS": "off",
}


class Whoami(msgspec.Struct, frozen=True):
    role: str
    has_history: bool = False
    version: str = ""


class Backlog(msgspec.Struct, frozen=True):
    backlog: int
    """Ready or claimed tasks."""


class OtherTasks(msgspec.Struct, frozen=True):
    """The tasks of others, which a run would slow down."""

    live: int
    finished_lately: int
    leftovers: tuple[str, ...]
    """Task types of runs that were killed, or that are running now."""


class BenchedService:
    def __init__(self, client: Client, api_key: str | None, task_type: str = "") -> None:
        self.client = client
        self.task_type = task_type or f"{PREFIX}{secrets.token_hex(4)}"
        self.url = client.transport.connection.url
        self.target = BenchTarget(self.url, api_key or "", self.task_type)

    def whoami(self) -> Whoami:
        return self.client.transport.request(get("/api/v1/whoami", answers(Whoami)))

    def check(self) -> None:
        """Raises where the service does not answer."""
        self.whoami()

    def other_tasks(self) -> OtherTasks:
        stats = self.client.queue.stats()
        ours = [name for name in stats.queue.by_type if name.startswith(PREFIX)]
        live = sum(stats.queue.by_state.values()) - sum(stats.queue.by_type[name] for name in ours)
        return OtherTasks(live, stats.throughput.completed_last_minute, tuple(sorted(ours)))

    def limits(self) -> tuple[Limit, ...]:
        """The limits of the whole queue; limits of types do not apply, because a run has a type of its own."""
        return tuple(limit for limit in self.client.queue.limits() if limit.task_type is None)

    def backlog(self) -> int:
        """The run's live tasks; the cost does not grow with the depth of the queue."""
        query = params(task_type=self.task_type, capability=self.task_type)
        return self.client.transport.request(get("/api/v1/queue/autoscale", answers(Backlog), query)).backlog

    def cpu_seconds(self) -> float | None:
        """CPU time of the service's processes behind this address; None where /metrics does not have it."""
        try:
            metrics = self.client.transport.request(get("/metrics", lambda body: body))
        except TideqError:
            return None
        found = [float(value) for value in CPU.findall(metrics)]
        return sum(found) if found else None

    def delete_finished(self) -> int:
        """Waits until history has all tasks of the run, deletes them there and in the store; returns their number."""
        options = TaskOptions(delay_seconds=3_600, required_capabilities=[self.task_type])
        last = self.client.submit(self.task_type, **options).task_id
        self.client.cancel(last)
        deadline = time.monotonic() + CLEAN_UP_SECONDS
        while self.client.get(last, history=True).history_lag_seconds and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return self.client.clean_up(timedelta(0), task_type=self.task_type)


@contextlib.contextmanager
def temporary_service() -> Generator[str]:
    """Yields the URL of `tideq up` with a temporary data folder and without depth limits.

    Variables of the environment that configure other services are removed.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)} | SETTINGS
    with tempfile.TemporaryDirectory(prefix="tideq-bench-") as folder:
        output = Path(folder) / "output"
        command = [sys.executable, "-P", "-m", "tideq.cli", "up", "--port", "0", "--no-demo"]
        with output.open("wb") as log:
            process = subprocess.Popen(
                [*command, "--data-dir", str(Path(folder) / "data")],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        try:
            yield _url(process, output)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            process.kill()
            process.wait()


def _url(process: subprocess.Popen[bytes], output: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while not (found := GREETING.search(text := output.read_text(errors="replace"))):
        if process.poll() is not None or time.monotonic() > deadline:
            raise GaveUp(f"the temporary service did not start: {' '.join(text.split())[-500:]}")
        time.sleep(LOOK_SECONDS / 4)
    return found[1]
