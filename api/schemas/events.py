"""Events of the event stream."""

from typing import Annotated, ClassVar

from tideq.api.schemas.base import Instant, ResponseSchema, TaskId, TaskType, WorkerId, about

GAP_DETAIL = "events are missing; read again what you display"


class EventOut(ResponseSchema, kw_only=True):
    """A transition: the `data` of one server-sent event."""

    task_id: TaskId
    task_type: TaskType
    status: Annotated[str, about("State after the transition.", "completed")]
    reason: Annotated[str, about("Reason of the transition.", "succeeded")]
    version: Annotated[int, about("Number of the transition.", 4)]
    attempt: Annotated[int, about("Number of the claim.", 1)]
    priority: Annotated[str, about("Priority level.", "high")]
    worker_id: Annotated[WorkerId | None, about("Worker that held the task.")]
    at: Annotated[Instant, about("Time of the transition by the store's clock.")]

    event_name: ClassVar[str] = "transition"


class GapOut(ResponseSchema, kw_only=True):
    """The `data` of an event named `gap`: the events between the last one and now are no longer stored."""

    detail: Annotated[str, about("The consequence in words.", GAP_DETAIL)]

    event_name: ClassVar[str] = "gap"
