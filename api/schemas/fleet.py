"""The fleet as operators see it."""

from typing import Annotated, Literal

from tideq.api.schemas.base import Count, Instant, Raw, ResponseSchema, WorkerId, about
from tideq.api.schemas.held_back import WorkerHeldBack, held_back_out
from tideq.api.schemas.times import maybe_rfc3339, rfc3339
from tideq.queue_core.fleet import LISTED_TASKS, Member

WorkerStatus = Literal["active", "draining", "unhealthy", "dead"]
REASONS: dict[str, str] = {
    "drained_by_operator": "an operator drained it: it finishes what it holds and leaves",
    "draining_by_itself": "its heartbeat said so: it gets nothing new until it says that it is active",
    "leaving": "it leaves, and what it holds is handed back",
    "probe_failed": "its health address failed two probes in a row: it gets nothing new until a probe succeeds",
    "unhealthy_by_itself": "its heartbeat said so: it gets nothing new until it says that it is active",
    "heartbeat_missed": "it was not heard of for the heartbeat timeout: what it held came back",
}


class WorkerOut(ResponseSchema, kw_only=True):
    """One worker as it registered, and how it is."""

    worker_id: WorkerId
    name: Annotated[str, about("What it calls itself.", "resizer")]
    status: Annotated[str, about("Only active workers are given work.", "active")]
    since: Annotated[Instant, about("When its status became what it is.")]
    reason: Annotated[str | None, about("Why it gets no new work; null of an active one.", None, enum=[*REASONS, None])]
    reason_detail: Annotated[str | None, about("The same in a sentence.", None)]
    task_types: Annotated[tuple[str, ...] | None, about("What it takes; null is anything.", ["resize"])]
    capabilities: Annotated[tuple[str, ...], about("What it has.", ["gpu"])]
    capacity: Annotated[int, about("Tasks it can hold.", 5)]
    held: Annotated[Count, about("Tasks it holds, assigned or executing, as the service counts.", 2)]
    current_load: Annotated[int | None, about("Tasks it works on, as it said last; null where it never did.", 2)]
    current_tasks: Annotated[
        tuple[str, ...],
        about(f"Ids of what it holds; in a list {LISTED_TASKS} of them where they are more.", []),
    ]
    health_failures: Annotated[Count, about("Probes of its health address that failed in a row.")]
    version: Annotated[str, about("In its own words.", "1.4.2")]
    host: Annotated[str, about("Where it runs.", "10.0.3.17")]
    health_port: Annotated[int | None, about("Where it can be probed.", 8081)]
    registered_at: Instant
    last_heartbeat_at: Annotated[Instant | None, about("When it was heard of last.")]
    heartbeat_due_at: Annotated[Instant | None, about("When it is given up, or was due, if not heard of.")]
    died_at: Annotated[Instant | None, about("When it was given up.", None)]
    circuit: Annotated[
        str,
        about("`open`: it gets nothing of what is in `held_back`; `trial`: its next results decide.", "closed"),
    ]
    circuit_open_until: Annotated[Instant | None, about("When the first of its circuits is tried.", None)]
    held_back: WorkerHeldBack
    health: Annotated[
        Raw, about("As it last reported it.", {"memory_usage_percent": 41.5, "cpu_usage_percent": 12.0}, type="object")
    ]


class WorkersOut(ResponseSchema, kw_only=True):
    """Workers in the order of their ids."""

    workers: list[WorkerOut]
    next_cursor: Annotated[str | None, about("Where the next page begins; null after the last.", None)]


class DrainOut(ResponseSchema, kw_only=True):
    """The worker gets nothing new."""

    worker_id: WorkerId
    status: Annotated[WorkerStatus, about("How it stands now.", "draining")]


def worker_out(member: Member, heartbeat_timeout_ms: int) -> WorkerOut:
    """The last heartbeat is where the deadline was counted from."""
    worker, due_ms = member.worker, member.heartbeat_due_at_ms
    return WorkerOut(
        worker_id=worker.worker_id,
        name=worker.name,
        status=member.status,
        since=rfc3339(member.since_ms),
        reason=member.reason,
        reason_detail=REASONS.get(member.reason or ""),
        task_types=worker.task_types,
        capabilities=worker.capabilities,
        capacity=worker.capacity,
        held=member.held_count,
        current_load=member.current_load,
        current_tasks=member.task_ids,
        health_failures=member.probe_failures,
        version=worker.version,
        host=worker.host,
        health_port=worker.health_port,
        registered_at=rfc3339(member.registered_at_ms),
        last_heartbeat_at=None if due_ms is None else rfc3339(due_ms - heartbeat_timeout_ms),
        heartbeat_due_at=maybe_rfc3339(due_ms),
        died_at=maybe_rfc3339(member.died_at_ms),
        circuit=member.circuit,
        circuit_open_until=maybe_rfc3339(member.circuit_open_until_ms),
        held_back=held_back_out(member.held_back),
        health=Raw(member.health or b"{}"),
    )
