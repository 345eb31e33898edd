"""Calls about workers to one partition: one script call each."""

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec
import structlog

from tideq.queue_core.circuits import CircuitState, circuit_summary, parse_circuits
from tideq.queue_core.claim_reply import parse_stops
from tideq.queue_core.lanes import worker_profile
from tideq.queue_core.scripts.replies import accepted, instant, lossy_text, number, number_or_none, text
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.task import Stop, WorkerDeclaration

log = structlog.get_logger(__name__)

DISMISS_LIMIT = 200
ALL_TASKS = 100_000

ReportedState = Literal["active", "draining", "unhealthy"]
"""The state that a worker reports about itself."""


class Heartbeat(msgspec.Struct, frozen=True):
    """The reply to a heartbeat: attempts to stop, and whether to drain."""

    now_ms: int
    should_drain: bool
    stops: tuple[Stop, ...]
    circuits: tuple[CircuitState, ...] = ()


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as stored. A dead worker stays listed for an hour."""

    worker: WorkerDeclaration
    status: str
    """`draining` if either state below is, else `unhealthy` if either is. Only an active worker gets new tasks."""
    service_state: str
    """Set by the service: `draining` by an operator, `unhealthy` by probes, `dead` by missed heartbeats."""
    reported_state: str
    """Reported last by the worker itself, or `leaving`."""
    held_count: int
    task_ids: tuple[str, ...]
    """Held tasks in order; a list shows only the first ones."""
    current_load: int | None
    """How many tasks the worker reported to run; None if it never reported."""
    probe_failures: int
    """Failed probes in a row, up to the monitor's last round."""
    registered_at_ms: int
    since_ms: int
    """Start of the current status."""
    heartbeat_due_at_ms: int | None
    """Deadline of the next heartbeat; of a dead worker, the deadline it missed."""
    died_at_ms: int | None
    health: bytes
    """The JSON object that the worker reported last; empty if it never did."""
    circuits: tuple[CircuitState, ...]
    """Its circuits that are open or on trial."""

    @property
    def reason(self) -> str | None:
        """Why the worker gets no new tasks; None if it gets some."""
        match self.status:
            case "dead":
                return "heartbeat_missed"
            case "draining" if self.service_state == "draining":
                return "leaving" if self.reported_state == "leaving" else "drained_by_operator"
            case "draining":
                return "draining_by_itself"
            case "unhealthy":
                return "probe_failed" if self.service_state == "unhealthy" else "unhealthy_by_itself"
            case _:
                return None

    @property
    def circuit(self) -> str:
        return circuit_summary(self.circuits)

    @property
    def circuit_open_until_ms(self) -> int | None:
        """When the first open circuit goes on trial."""
        return min((each.until_ms for each in self.circuits if each.until_ms is not None), default=None)


class FleetPage(msgspec.Struct, frozen=True):
    now_ms: int
    members: tuple[Member, ...]
    next_after: str
    """`after` of the next page; empty after the last page. A page may be short or empty without being the last."""


async def register_worker(scripts: Scripts, worker: WorkerDeclaration) -> None:
    reply = await scripts.call(
        "register",
        worker_id=worker.worker_id,
        profile=worker_profile(worker.task_types, worker.capabilities),
        description=msgspec.json.encode(worker),
        capacity=worker.capacity,
    )
    accepted(reply)


async def get_worker(scripts: Scripts, worker_id: str) -> Member:
    reply = await scripts.call("get_worker", is_bulk=True, worker_id=worker_id, most_tasks=ALL_TASKS)
    return _member(accepted(reply)[1])


async def beat(
    scripts: Scripts, worker_id: str, health: bytes, reported_state: ReportedState | None, load: int | None
) -> Heartbeat:
    reply = await scripts.call(
        "heartbeat",
        worker_id=worker_id,
        health=health,
        word=reported_state or "",
        load="" if load is None else load,
    )
    now, drains, stops, circuits = accepted(reply)
    return Heartbeat(number(now), number(drains) == 1, parse_stops(stops), parse_circuits(text(circuits)))


async def list_workers(
    scripts: Scripts, statuses: Collection[str], *, after: str, limit: int, most_tasks: int
) -> FleetPage:
    reply = await scripts.call(
        "list_workers", is_bulk=True, after=after, statuses=",".join(statuses), limit=limit, most_tasks=most_tasks
    )
    now, next_after, rows = accepted(reply)
    return FleetPage(number(now), tuple(_member(row) for row in rows), text(next_after))


async def deregister_worker(scripts: Scripts, worker_id: str) -> int:
    """Returns how many tasks were released, a bounded number in each script call."""
    released, left = 0, 1
    while left:
        moved, left = map(number, accepted(await scripts.call("deregister", worker_id=worker_id, limit=DISMISS_LIMIT)))
        released += moved
    return released


async def set_worker_state(
    scripts: Scripts, worker_id: str, state: ReportedState | None, probe_failures: int | None = None
) -> str:
    reply = await scripts.call(
        "set_worker_state",
        worker_id=worker_id,
        verdict=state or "",
        probe_failures="" if probe_failures is None else probe_failures,
    )
    return text(accepted(reply)[0])


def _member(row: Sequence[Any]) -> Member:
    (worker_id, status, verdict, word, description, registered, since, due, died, *more) = row
    health, load, probe_failures, held, task_ids, circuits = more
    registered_at_ms = _optional_number(registered, "registered_ms") or 0
    died_at_ms = _optional_number(died, "died_ms")
    return Member(
        worker=_worker(text(worker_id), description),
        status=text(status),
        service_state=text(verdict),
        reported_state=text(word),
        held_count=number(held),
        task_ids=tuple(sorted(map(text, task_ids))),
        current_load=_optional_number(load, "load"),
        probe_failures=_optional_number(probe_failures, "probe_failures") or 0,
        registered_at_ms=registered_at_ms,
        since_ms=died_at_ms or _optional_number(since, "since_ms") or registered_at_ms,
        heartbeat_due_at_ms=instant(due),
        died_at_ms=died_at_ms,
        health=health or b"",
        circuits=parse_circuits(lossy_text(circuits)),
    )


def _optional_number(value: Any, of: str) -> int | None:
    return number_or_none(value, of) if value else None


def _worker(worker_id: str, description: bytes) -> WorkerDeclaration:
    """With the id alone if the declaration is missing or unreadable."""
    try:
        return (
            msgspec.json.decode(description, type=WorkerDeclaration)
            if description
            else WorkerDeclaration(worker_id=worker_id)
        )
    except msgspec.DecodeError as error:
        log.error("worker declaration unreadable", worker_id=worker_id, problem=str(error))
        return WorkerDeclaration(worker_id=worker_id)
