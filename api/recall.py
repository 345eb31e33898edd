"""Tasks wherever they are: the store first, then history, which has what the store has forgotten.

Whether a task exists is never guessed: if the store does not have it and history cannot be asked, the answer is 503.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from tideq.api import schemas
from tideq.api.service import Service
from tideq.persistence.archive import Archive
from tideq.queue_core.engine.queue import OnRevived
from tideq.queue_core.errors import (
    HistoryUnavailable,
    LanesExhausted,
    RankOutOfRange,
    TaskNotFound,
    TooManyNewLanes,
    UnknownPriority,
    WrongState,
)
from tideq.queue_core.task import NewTask, Submitted, Task

REVIVAL = (
    TaskNotFound,
    WrongState,
    UnknownPriority,
    RankOutOfRange,
    TooManyNewLanes,
    LanesExhausted,
    HistoryUnavailable,
)
"""What `revive` may raise."""


def archive_of(service: Service) -> Archive:
    if service.history is None:
        raise HistoryUnavailable("this service keeps no history: set DATABASE_URL to a PostgreSQL and start again")
    return service.history


async def find(service: Service, task_id: str) -> Task:
    found = (await service.engine.queue.read_many([task_id]))[0]
    return found or await find_forgotten(service, task_id)


async def find_forgotten(service: Service, task_id: str) -> Task:
    found = await service.history.recall.find(task_id) if service.history else None
    if found is None:
        raise TaskNotFound(task_id)
    return found


async def wait(service: Service, task_id: str, seconds: float) -> Task:
    """What is forgotten has ended."""
    try:
        return await service.wait(task_id, seconds)
    except TaskNotFound:
        return await find_forgotten(service, task_id)


async def cancel(service: Service, task_id: str) -> tuple[str, str]:
    """The state it was in, and who was told to stop."""
    try:
        was, worker = (await service.engine.queue.cancel(task_id)).details
    except TaskNotFound:
        raise WrongState(task_id, (await find_forgotten(service, task_id)).state) from None
    return was, worker


async def purge(service: Service, task_id: str) -> None:
    try:
        await service.engine.queue.purge(task_id)
    except TaskNotFound:
        await find_forgotten(service, task_id)
        if not await archive_of(service).cleanup.remove([task_id]):
            raise


async def revive(
    service: Service,
    verb: Callable[..., Awaitable[int]],
    task_id: str,
    asked: schemas.RetryIn,
    on_revived: OnRevived | None,
) -> schemas.RetryOut:
    """By the queue's `retry` or `replay`."""
    options = {
        "keeps_budgets": not asked.reset_retry_count,
        "priority": asked.new_priority,
        "on_revived": on_revived,
    }
    try:
        return schemas.RetryOut(task_id=task_id, version=await verb(task_id, **options))
    except TaskNotFound:
        if service.history is None:
            raise
    async with service.history.recall.holding(task_id) as kept:
        if kept is None:
            raise TaskNotFound(task_id)
        return schemas.RetryOut(task_id=task_id, version=await verb(task_id, **options, kept=kept))


async def submit(service: Service, task: NewTask) -> Submitted:
    """A task whose id history knows is answered as known, as the store does with those it has."""
    if task.task_id is not None:
        (answer,) = await submit_many(service, [task], wants_position=True)
        return answer
    answer = await service.engine.queue.submit(task)
    service.meters.submitted_count += answer.is_new
    return answer


async def submit_many(service: Service, tasks: Sequence[NewTask], *, wants_position: bool = False) -> list[Submitted]:
    known = await _known_ids(service, [task for task in tasks if task.task_id])
    new = [task for task in tasks if task.task_id not in known]
    made = await service.engine.queue.submit_many(new, wants_position=wants_position) if new else []
    service.meters.submitted_count += sum(answer.is_new for answer in made)
    answers = iter(made)
    return [
        Submitted(task.task_id, False, None, None, None, known[task.task_id].now_ms)
        if task.task_id in known
        else next(answers)
        for task in tasks
    ]


async def _known_ids(service: Service, tasks: Sequence[NewTask]) -> dict[str, Task]:
    """Tasks whose ids were chosen and stand for a task already.

    One that the store has is not submitted to it: the store might forget it just before, and take it for new. It has
    to look at those with a key as well, which may stand for another task.
    """
    ids = [task.task_id or "" for task in tasks]
    present = dict(zip(ids, await service.engine.queue.read_many(ids) if ids else (), strict=True))
    absent = [task_id for task_id, task in present.items() if task is None]
    known = await service.history.recall.forgotten(absent) if absent and service.history else {}
    plain = {task.task_id for task in tasks if task.idempotency_key is None}
    return known | {task_id: task for task_id, task in present.items() if task is not None and task_id in plain}


class KnownTasks(NamedTuple):
    """Tasks that were known before they were submitted, as they are by now, by where they were found."""

    in_store: Mapping[str, Task]
    in_history: Mapping[str, Task]

    def get(self, task_id: str) -> Task | None:
        return self.in_store.get(task_id) or self.in_history.get(task_id)

    def still_in_store(self, answers: Sequence[Submitted]) -> list[str]:
        """What history has instead is safer than any store, and what neither has is gone."""
        return [answer.task_id for answer in answers if answer.is_new or answer.task_id in self.in_store]


NONE_KNOWN = KnownTasks({}, {})


async def known_tasks(service: Service, answers: Sequence[Submitted]) -> KnownTasks:
    """Those of the answers that were known already, by their keys or ids."""
    ids = list(dict.fromkeys(answer.task_id for answer in answers if not answer.is_new))
    if not ids:
        return NONE_KNOWN
    present = dict(zip(ids, await service.engine.queue.read_many(ids), strict=True))
    in_store = {task_id: task for task_id, task in present.items() if task is not None}
    forgotten = [task_id for task_id in ids if task_id not in in_store]
    found = await service.history.history.find_many(forgotten) if forgotten and service.history else {}
    return KnownTasks(in_store, found)
