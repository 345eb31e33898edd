"""Workers as operators see them."""

from datetime import datetime
from typing import Any

import msgspec


class BlockedType(msgspec.Struct, frozen=True, kw_only=True):
    """A task type whose circuit is open: the worker gets none of it, or a few as a trial."""

    task_type: str | None = None
    """`None` for all types together."""
    until: datetime | None = None
    """`None` during a trial."""
    reason: str = ""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's registration and present status."""

    worker_id: str
    status: str
    since: datetime | None = None
    """Start of the present status."""
    reason: str | None = None
    """Why it gets no new tasks, in one word; `None` while it is active."""
    reason_detail: str | None = None
    name: str = ""
    task_types: tuple[str, ...] | None = None
    """None for all types."""
    capabilities: tuple[str, ...] = ()
    capacity: int = 0
    held: int = 0
    """Tasks it holds, counted by the service."""
    current_load: int | None = None
    """Running tasks in its last heartbeat; `None` before the first."""
    current_tasks: tuple[str, ...] = ()
    """Ids of held tasks: all where one worker is read, some in a list."""
    health_failures: int = 0
    """Failed health probes in a row."""
    version: str = ""
    host: str = ""
    health_port: int | None = None
    registered_at: datetime | None = None
    last_heartbeat_at: datetime | None = None
    heartbeat_due_at: datetime | None = None
    died_at: datetime | None = None
    circuit: str = "closed"
    """`open` while it gets no tasks of the types in `blocked_types`; `trial` while its next results decide."""
    circuit_open_until: datetime | None = None
    blocked_types: tuple[BlockedType, ...] = ()
    health: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    workers: tuple[WorkerInfo, ...]
    next_cursor: str | None = None


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """The worker gets no new tasks."""

    worker_id: str
    status: str = "draining"
