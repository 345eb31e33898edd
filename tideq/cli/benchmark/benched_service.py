"""The service a run is made against: what it tells of itself, and what belongs to the run there."""

import re
import secrets
import time
from datetime import timedelta

import msgspec

from tideq.cli.benchmark.messages import Target
from tideq.client import Client, Limit, TideqError
from tideq.client.calls.base import answers, get, params
from tideq.client.models.tasks import TaskOptions

PREFIX = "tideq.bench."
CPU = re.compile(rb"^tideq_process_cpu_seconds_total\S* (\S+)", re.MULTILINE)
CLEAN_UP_SECONDS = 60.0
LOOK_SECONDS = 0.2


class Whoami(msgspec.Struct, frozen=True):
    role: str
    has_history: bool = False
    version: str = ""
    queue: str = ""


class Backlog(msgspec.Struct, frozen=True):
    backlog: int
    """Ready or held."""


class Others(msgspec.Struct, frozen=True):
    """What a run might be in the way of."""

    live: int
    finished_lately: int
    leftovers: tuple[str, ...]
    """Types of runs that did not end in order, or that go on now."""


class BenchedService:
    def __init__(self, client: Client, api_key: str | None, task_type: str = "") -> None:
        self.client = client
        self.task_type = task_type or f"{PREFIX}{secrets.token_hex(4)}"
        self.url = client.transport.connection.url
        self.target = Target(self.url, api_key or "", self.task_type)

    def whoami(self) -> Whoami:
        return self.client.transport.request(get("/api/v1/whoami", answers(Whoami)))

    def check(self) -> None:
        """Raises where it has gone."""
        self.whoami()

    def others(self) -> Others:
        stats = self.client.queue.stats()
        ours = [name for name in stats.queue.by_type if name.startswith(PREFIX)]
        live = sum(stats.queue.by_state.values()) - sum(stats.queue.by_type[name] for name in ours)
        return Others(live, stats.throughput.completed_last_minute, tuple(sorted(ours)))

    def limits(self) -> tuple[Limit, ...]:
        """Those of the whole queue: a run has a type of its own."""
        return tuple(limit for limit in self.client.queue.limits() if limit.task_type is None)

    def backlog(self) -> int:
        """What is left of the run; costs the same whatever waits."""
        wanted = params(task_type=self.task_type, capability=self.task_type)
        return self.client.transport.request(get("/api/v1/queue/autoscale", answers(Backlog), wanted)).backlog

    def cpu_seconds(self) -> float | None:
        """Of the service's processes behind this address, where they tell."""
        try:
            told = self.client.transport.request(get("/metrics", lambda body: body))
        except TideqError:
            return None
        found = [float(value) for value in CPU.findall(told)]
        return sum(found) if found else None

    def forget_finished(self) -> int:
        """From the store and from history, once that knows of all of them; how many went."""
        options = TaskOptions(delay_seconds=3_600, required_capabilities=[self.task_type])
        last = self.client.submit(self.task_type, **options).task_id
        self.client.cancel(last)
        deadline = time.monotonic() + CLEAN_UP_SECONDS
        while self.client.get(last, history=True).history_lag_seconds and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return self.client.clean_up(timedelta(0), task_type=self.task_type)
