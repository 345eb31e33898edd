"""Workers as operators see them."""

from datetime import datetime
from typing import Any

import msgspec


class BlockedType(msgspec.Struct, frozen=True, kw_only=True):
    """A task type that a worker gets nothing of, or a few to try, because it failed too often."""

    task_type: str | None = None
    """`None` for all types together."""
    until: datetime | None = None
    """`None` while its next results decide."""
    reason: str = ""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as it registered, and how it is."""

    worker_id: str
    status: str
    since: datetime | None = None
    """When it became so."""
    reason: str | None = None
    """Why it gets no new work, in one word; `None` while it is active."""
    reason_detail: str | None = None
    name: str = ""
    task_types: tuple[str, ...] | None = None
    """None is anything."""
    capabilities: tuple[str, ...] = ()
    capacity: int = 0
    held: int = 0
    """Tasks it holds, as the service counts."""
    current_load: int | None = None
    """Tasks it works on, as it said last; `None` where it never did."""
    current_tasks: tuple[str, ...] = ()
    """Ids of what it holds: of one worker all, in a list some."""
    health_failures: int = 0
    """Probes of its health address that failed in a row."""
    version: str = ""
    host: str = ""
    health_port: int | None = None
    registered_at: datetime | None = None
    last_heartbeat_at: datetime | None = None
    heartbeat_due_at: datetime | None = None
    died_at: datetime | None = None
    circuit: str = "closed"
    """`open` while it gets nothing of the types in `held_back`; `trial` while its next results decide."""
    circuit_open_until: datetime | None = None
    held_back: tuple[BlockedType, ...] = ()
    health: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    workers: tuple[Worker, ...]
    next_cursor: str | None = None


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """The worker gets nothing new."""

    worker_id: str
    status: str = "draining"
