"""The service a run is made against: what it tells of itself, and what belongs to the run there."""

import re
import secrets
import time
from datetime import timedelta

import msgspec

from tideq.cli.measuring.jobs import Target
from tideq.client import Client, Limit, TideqError
from tideq.client.calls.base import answers, get, params

PREFIX = "tideq.bench."
CPU = re.compile(rb"^tideq_process_cpu_seconds_total\S* (\S+)", re.MULTILINE)
CLEAN_UP_SECONDS = 30.0
LOOK_SECONDS = 0.5


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


class Place:
    def __init__(self, client: Client, api_key: str | None, task_type: str = "") -> None:
        self.client = client
        self.task_type = task_type or f"{PREFIX}{secrets.token_hex(4)}"
        self.url = client.transport.connection.url
        self.target = Target(self.url, api_key or "", self.task_type)

    def whoami(self) -> Whoami:
        return self.client.transport.ask(get("/api/v1/whoami", answers(Whoami)))

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
        return self.client.transport.ask(get("/api/v1/queue/autoscale", answers(Backlog), wanted)).backlog

    def cpu_seconds(self) -> float | None:
        """Of the service's processes behind this address, where they tell."""
        try:
            told = self.client.transport.ask(get("/metrics", lambda body: body))
        except TideqError:
            return None
        found = [float(value) for value in CPU.findall(told)]
        return sum(found) if found else None

    def forget_finished(self) -> int:
        """From the store and from history, which may be a little behind; how many went."""
        deadline, gone, idle = time.monotonic() + CLEAN_UP_SECONDS, 0, 0
        while idle < 2 and time.monotonic() < deadline:
            went = self.client.clean_up(timedelta(0), task_type=self.task_type)
            gone, idle = gone + went, 0 if went else idle + 1
            time.sleep(0 if went else LOOK_SECONDS)
        return gone
