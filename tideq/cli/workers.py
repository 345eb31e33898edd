"""`tideq workers`: lists, shows and drains workers."""

from typing import Annotated

from tideq.cli.circuits import blocked_types_text
from tideq.cli.output import Cell, note, show, show_one
from tideq.cli.session import LOCAL, OK, Ids, Service, Several, exit_code, open_client, split
from tideq.client import Drained, NotFound

COLUMNS: dict[str, Cell] = {
    "worker": "worker_id",
    "status": "status",
    "since": "since",
    "why": "reason",
    "held": "held",
    "load": "current_load",
    "capacity": "capacity",
    "probes failed": "health_failures",
    "blocked from": blocked_types_text,
    "types": "task_types",
    "capabilities": "capabilities",
    "host": "host",
    "version": "version",
    "last heartbeat": "last_heartbeat_at",
}


def show_list(*, status: Annotated[list[str] | None, Several] = None, service: Service = LOCAL) -> None:
    """All workers, including those that died within the last hour, and the task types they are blocked from.

    Parameters
    ----------
    status
        Only workers in these states: active,draining,unhealthy,dead.
    """
    with open_client(service) as client:
        show(client.workers.list(split(status)), COLUMNS, service.output)


def show_worker(worker_id: str, *, service: Service = LOCAL) -> None:
    """One worker, also one that died within the last hour: its state, reason, since when, and the tasks it holds."""
    with open_client(service) as client:
        show_one(client.workers.get(worker_id), service.output)


def drain(worker_ids: Ids, *, service: Service = LOCAL) -> int:
    """Give workers no new tasks: they finish the tasks they hold and stop. Fails if a worker is unknown.

    Parameters
    ----------
    worker_ids
        One or more worker ids.
    """
    done: list[Drained] = []
    codes: list[int] = []
    with open_client(service) as client:
        for worker_id in worker_ids:
            try:
                done.append(client.workers.drain(worker_id))
            except NotFound as error:
                note(f"error: {error}")
                codes.append(exit_code(error))
        show(done, {"worker": "worker_id", "status": "status"}, service.output)
    return codes[0] if codes else OK
