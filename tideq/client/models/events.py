"""The events of a stream."""

from datetime import datetime

import msgspec


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A task changed its state."""

    task_id: str
    task_type: str
    status: str
    at: datetime
    reason: str = ""
    version: int = 0
    attempt: int = 0
    priority: str = ""
    worker_id: str | None = None
    event_id: str = ""
    """For `client.events(after=…)`, to continue after this event."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Events are missing here, because the service no longer has them: read the tasks you show again."""

    detail: str = ""
    event_id: str = ""


Event = Transition | Gap
