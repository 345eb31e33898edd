"""What a stream of events tells."""

from datetime import datetime

import msgspec


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A task went from one state to another."""

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
    """To go on from here later: `client.events(after=…)`."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Events are missing here, because the service no longer keeps them: read again what you show."""

    detail: str = ""
    event_id: str = ""


Event = Transition | Gap
