"""Finds tasks in the store first, then in history, which has those that the store has expired.

The existence of a task is never guessed: if the store does not have it and history is unreachable, the answer is 503.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from tideq.api.schemas.tasks import RetryIn, RetryOut
from tideq.api.service import Service
from tideq.persistence.history import History
from tideq.queue_core.errors import (
    HistoryUnavailable,
    LanesExhausted,
    RankOutOfRange,
    TaskNotFound,
    TooManyNewLanes,
    UnknownPriority,
    WrongState,
)
from tideq.queue_core.partition import OnRequeued
from tideq.queue_core.task import NewTask, Submitted, Task

REQUEUE_ERRORS = (
    TaskNotFound,
    WrongState,
    UnknownPriority,
    RankOutOfRange,
    TooManyNewLanes,
    LanesExhausted,
    HistoryUnavailable,
)
"""Errors that `requeue` may raise."""


def history_of(service: Service) -> History:
    if service.history is None:
        raise HistoryUnavailable("this service has no history; set DATABASE_URL to a PostgreSQL database and restart")
    return service.history


async def find(service: Service, task_id: str) -> Task:
    found = (await service.engine.queue.read_many([task_id]))[0]
    return found or await find_expired(service, task_id)


async def find_expired(service: Service, task_id: str) -> Task:
    found = await service.history.expired.find(task_id) if service.history else None
    if found is None:
        raise TaskNotFound(task_id)
    return found


async def wait(service: Service, task_id: str, seconds: float) -> Task:
    """The task once it has ended, or as it is when the time is up. An expired task has ended."""
    try:
        return await service.wait(task_id, seconds)
    except TaskNotFound:
        return await find_expired(service, task_id)


async def cancel(service: Service, task_id: str) -> tuple[str, str]:
    """The state the task was in, and the id of the worker that is notified."""
    try:
        was, worker = (await service.engine.queue.cancel(task_id)).details
    except TaskNotFound:
        raise WrongState(task_id, (await find_expired(service, task_id)).state) from None
    return was, worker


async def purge(service: Service, task_id: str) -> None:
    try:
        await service.engine.queue.purge(task_id)
    except TaskNotFound:
        await find_expired(service, task_id)
        if not await history_of(service).cleanup.remove([task_id]):
            raise


async def requeue(
    service: Service,
    verb: Callable[..., Awaitable[int]],
    task_id: str,
    body: RetryIn,
    on_requeued: OnRequeued | None,
) -> RetryOut:
    """`verb` is the queue's `retry` or `replay`."""
    options = {
        "keeps_budgets": not body.reset_retry_count,
        "priority": body.new_priority,
        "on_requeued": on_requeued,
    }
    try:
        return RetryOut(task_id=task_id, version=await verb(task_id, **options))
    except TaskNotFound:
        if service.history is None:
            raise
    async with service.history.expired.locked(task_id) as kept:
        if kept is None:
            raise TaskNotFound(task_id)
        return RetryOut(task_id=task_id, version=await verb(task_id, **options, kept=kept))


async def submit(service: Service, task: NewTask) -> Submitted:
    """The result for a new task, or for the task that its chosen id or idempotency key already refers to."""
    if task.task_id is not None:
        (answer,) = await submit_many(service, [task], include_position=True)
        return answer
    answer = await service.engine.queue.submit(task)
    service.metrics.submitted_count += answer.is_new
    return answer


async def submit_many(service: Service, tasks: Sequence[NewTask], *, include_position: bool = False) -> list[Submitted]:
    existing = await _existing_by_id(service, [task for task in tasks if task.task_id])
    new = [task for task in tasks if task.task_id not in existing]
    made = await service.engine.queue.submit_many(new, include_position=include_position) if new else []
    service.metrics.submitted_count += sum(answer.is_new for answer in made)
    answers = iter(made)
    return [
        Submitted(task.task_id, False, None, None, None, existing[task.task_id].now_ms)
        if task.task_id in existing
        else next(answers)
        for task in tasks
    ]


async def _existing_by_id(service: Service, tasks: Sequence[NewTask]) -> dict[str, Task]:
    """The tasks that already exist under ids chosen by the client.

    A task in the store is not submitted again: it might expire just before and be accepted as new. With an idempotency
    key it is submitted all the same, because the key may belong to another task.
    """
    ids = [task.task_id or "" for task in tasks]
    present = dict(zip(ids, await service.engine.queue.read_many(ids) if ids else (), strict=True))
    absent = [task_id for task_id, task in present.items() if task is None]
    expired = await service.history.expired.find_expired(absent) if absent and service.history else {}
    plain = {task.task_id for task in tasks if task.idempotency_key is None}
    return expired | {task_id: task for task_id, task in present.items() if task is not None and task_id in plain}


class ExistingTasks(NamedTuple):
    """Tasks that existed before this submission, as they are now, by where they were found."""

    in_store: Mapping[str, Task]
    in_history: Mapping[str, Task]

    def get(self, task_id: str) -> Task | None:
        return self.in_store.get(task_id) or self.in_history.get(task_id)

    def still_in_store(self, answers: Sequence[Submitted]) -> list[str]:
        """Ids whose durability depends on the store: a task in history is durable, one in neither has been removed."""
        return [answer.task_id for answer in answers if answer.is_new or answer.task_id in self.in_store]


NO_TASKS = ExistingTasks({}, {})


async def existing_tasks(service: Service, answers: Sequence[Submitted]) -> ExistingTasks:
    """The tasks of the answers that are not new, by id."""
    ids = list(dict.fromkeys(answer.task_id for answer in answers if not answer.is_new))
    if not ids:
        return NO_TASKS
    present = dict(zip(ids, await service.engine.queue.read_many(ids), strict=True))
    in_store = {task_id: task for task_id, task in present.items() if task is not None}
    expired = [task_id for task_id in ids if task_id not in in_store]
    found = await service.history.tasks.find_many(expired) if expired and service.history else {}
    return ExistingTasks(in_store, found)
