"""Workers, as shown to operators."""

from typing import Annotated, Literal

from tideq.api.schemas.base import Count, Instant, Raw, ResponseSchema, WorkerId, about
from tideq.api.schemas.blocked_types import WorkerBlockedTypes, blocked_types_out
from tideq.api.schemas.times import maybe_rfc3339, rfc3339
from tideq.queue_core.fleet import LISTED_TASKS, Member

WorkerStatus = Literal["active", "draining", "unhealthy", "dead"]
REASONS: dict[str, str] = {
    "drained_by_operator": "drained by an operator: the worker finishes the tasks it holds and deregisters",
    "draining_by_itself": "its heartbeat reported draining: no new tasks until it reports active",
    "leaving": "the worker is deregistering, and its tasks are handed back",
    "probe_failed": "its health address failed two probes in a row: no new tasks until a probe succeeds",
    "unhealthy_by_itself": "its heartbeat reported unhealthy: no new tasks until it reports active",
    "heartbeat_missed": "no heartbeat within the heartbeat timeout: the tasks it held were requeued",
}


class WorkerOut(ResponseSchema, kw_only=True):
    """A worker's registration and condition."""

    worker_id: WorkerId
    name: Annotated[str, about("Name given at registration.", "resizer")]
    status: Annotated[str, about("Only active workers get new tasks.", "active")]
    since: Annotated[Instant, about("Start of the current status.")]
    reason: Annotated[
        str | None, about("Why the worker gets no new tasks; null if active.", None, enum=[*REASONS, None])
    ]
    reason_detail: Annotated[str | None, about("The reason in a sentence.", None)]
    task_types: Annotated[tuple[str, ...] | None, about("Types the worker handles; null for all types.", ["resize"])]
    capabilities: Annotated[tuple[str, ...], about("Capabilities of the worker.", ["gpu"])]
    capacity: Annotated[int, about("Tasks the worker can hold.", 5)]
    held: Annotated[Count, about("Tasks the worker holds, assigned or executing, counted by the service.", 2)]
    current_load: Annotated[int | None, about("Tasks being executed, as last reported; null if never reported.", 2)]
    current_tasks: Annotated[
        tuple[str, ...],
        about(f"Ids of the tasks it holds; in lists at most {LISTED_TASKS}.", []),
    ]
    health_failures: Annotated[Count, about("Failed probes of its health address in a row.")]
    version: Annotated[str, about("Version given at registration.", "1.4.2")]
    host: Annotated[str, about("Host of the worker.", "10.0.3.17")]
    health_port: Annotated[int | None, about("Port of the worker's health page.", 8081)]
    registered_at: Instant
    last_heartbeat_at: Annotated[Instant | None, about("Time of the last heartbeat, poll or sync.")]
    heartbeat_due_at: Annotated[Instant | None, about("When the worker counts as dead without another heartbeat.")]
    died_at: Annotated[Instant | None, about("When the worker was declared dead.", None)]
    circuit: Annotated[
        str,
        about(
            "`open`: no tasks of the types in `blocked_types`; `trial`: the results of trial tasks decide.", "closed"
        ),
    ]
    circuit_open_until: Annotated[Instant | None, about("When the trial of its first circuit begins.", None)]
    blocked_types: WorkerBlockedTypes
    health: Annotated[
        Raw,
        about(
            "Values of the last heartbeat.", {"memory_usage_percent": 41.5, "cpu_usage_percent": 12.0}, type="object"
        ),
    ]


class WorkersOut(ResponseSchema, kw_only=True):
    """Workers in the order of their ids."""

    workers: list[WorkerOut]
    next_cursor: Annotated[str | None, about("Cursor of the next page; null on the last.", None)]


class DrainOut(ResponseSchema, kw_only=True):
    """The worker gets no new tasks."""

    worker_id: WorkerId
    status: Annotated[WorkerStatus, about("Status of the worker.", "draining")]


def worker_out(member: Member, heartbeat_timeout_ms: int) -> WorkerOut:
    """The last heartbeat is computed from the deadline that it set."""
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
        blocked_types=blocked_types_out(member.circuits),
        health=Raw(member.health or b"{}"),
    )
