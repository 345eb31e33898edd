"""What a stream of events tells."""

from typing import Annotated, ClassVar

from tideq.api.schemas.base import Instant, ResponseSchema, TaskId, TaskType, WorkerId, about


class EventOut(ResponseSchema, kw_only=True):
    """A transition: the `data` of one server-sent event."""

    task_id: TaskId
    task_type: TaskType
    status: Annotated[str, about("Where it is now.", "completed")]
    reason: Annotated[str, about("Why.", "succeeded")]
    version: Annotated[int, about("Counts its transitions.", 4)]
    attempt: Annotated[int, about("Counts its claims.", 1)]
    priority: Annotated[str, about("Its level.", "high")]
    worker_id: Annotated[WorkerId | None, about("Who held it.")]
    at: Annotated[Instant, about("When it happened, by the store's clock.")]

    event_name: ClassVar[str] = "transition"


class GapOut(ResponseSchema, kw_only=True):
    """The `data` of an event named gap: what lies between the last event and now is no longer kept."""

    detail: Annotated[str, about("What to do about it.", "events are missing here: read again what you show")]

    event_name: ClassVar[str] = "gap"
