"""A history that never happened: many tasks over many weeks, written straight into the tables, and known in Python."""

import random
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tideq.persistence.database import Database
from tideq.persistence.read.filters import timestamp_of
from tideq.persistence.schema.partitions import Partitions
from tideq.persistence.settings import DAY_MS, HistorySettings
from tideq.persistence.terms import error_terms, parameter_term, tag_term
from tideq.queue_core.scripts.record import NAMES
from tideq.queue_core.states import TaskState
from tideq.queue_core.store.formats import NEWEST_FORMAT

WEEK_MS = 7 * DAY_MS
WORDS = ("upstream", "timed", "out", "refused", "disk", "full", "timeout")
ENDED = {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED, TaskState.DEAD_LETTER}


@dataclass(frozen=True, slots=True)
class MadeUpTask:
    task_id: str
    created_ms: int
    state: str
    task_type: str
    priority: str
    worker_id: str | None
    trace_id: str | None
    tags: dict[str, str]
    error: str
    width: str

    @property
    def terms(self) -> set[str]:
        tags = {tag_term(name, value) for name, value in self.tags.items()}
        width = {parameter_term(self.task_type, "width", self.width)} if self.task_type == "resize" else set[str]()
        return tags | width | set(error_terms(self.error))

    @property
    def ended_ms(self) -> int | None:
        return self.created_ms + 5_000 if self.state in ENDED else None


def made_up_tasks(count: int, end_ms: int, span_ms: int, seed: int = 1) -> list[MadeUpTask]:
    """Oldest first. What waits is at the end, and nothing was cancelled but long ago."""
    chance = random.Random(seed)
    return [_made_up(chance, end_ms - span_ms + span_ms * number // count, number / count) for number in range(count)]


def _made_up(chance: random.Random, created_ms: int, share: float) -> MadeUpTask:
    state = _state(chance, share)
    return MadeUpTask(
        task_id=str(
            uuid.UUID(
                int=created_ms << 80 | 0x7 << 76 | chance.getrandbits(12) << 64 | 0b10 << 62 | chance.getrandbits(62)
            )
        ),
        created_ms=created_ms + chance.randrange(3),
        state=state,
        task_type=chance.choices(("resize", "crawl", "mail", "rare"), (70, 20, 9.9, 0.1))[0],
        priority=chance.choices(("high", "medium", "low"), (5, 90, 5))[0],
        worker_id=None if state == TaskState.QUEUED else f"w{chance.randrange(50)}",
        trace_id=f"{chance.getrandbits(128):032x}" if chance.random() < 0.5 else None,
        tags=_tags(chance),
        error=_error(chance) if state in (TaskState.FAILED, TaskState.DEAD_LETTER) else "",
        width=str(chance.randrange(500)),
    )


def _state(chance: random.Random, share: float) -> TaskState:
    if share > 0.97:
        return chance.choices((TaskState.QUEUED, TaskState.EXECUTING, TaskState.COMPLETED), (90, 5, 5))[0]
    rare = (TaskState.FAILED, TaskState.DEAD_LETTER, *((TaskState.CANCELLED,) if share < 0.1 else ()))
    return chance.choices((TaskState.COMPLETED, *rare), (96, *(2 for _ in rare)))[0]


def _tags(chance: random.Random) -> dict[str, str]:
    if chance.random() > 0.25:
        return {}
    return {"env": chance.choices(("prod", "stage"), (9, 1))[0], "customer": f"c{chance.randrange(2_000)}"}


def _error(chance: random.Random) -> str:
    return f"{' '.join(chance.sample(WORDS, 3))}, code {chance.randrange(100)}"


async def write(database: Database, tasks: Sequence[MadeUpTask], end_ms: int, span_ms: int) -> None:
    """Into partitions of a week, analysed as a running PostgreSQL would."""
    partitions = Partitions(database, HistorySettings(partition_ms=WEEK_MS))
    await partitions.make_ahead(end_ms - span_ms)
    for week_ms in range(end_ms - span_ms, end_ms + WEEK_MS, WEEK_MS):
        await partitions.make_ahead(week_ms)
    async with database.session() as connection:
        async with connection.cursor() as cursor:
            async with cursor.copy("COPY tasks FROM STDIN") as sink:
                for lines in _in_blocks(map(_task_line, tasks)):
                    await sink.write(lines)
            async with cursor.copy("COPY task_terms FROM STDIN") as sink:
                for lines in _in_blocks(f"{term}\t{task.task_id}\n" for task in tasks for term in task.terms):
                    await sink.write(lines)
        await connection.execute("ANALYZE")


def _task_line(task: MadeUpTask) -> str:
    columns = (
        task.task_id, 1, 3, task.state, "submitted", task.task_type, task.priority, task.worker_id, task.trace_id, None,
        timestamp_of(task.created_ms), timestamp_of(task.ended_ms) if task.ended_ms else None,
        f'{{"width":{task.width}}}', "{}", _record(task), None, f'{{"message":"{task.error}"}}' if task.error else None,
    )  # fmt: skip
    return "\t".join("\\N" if column is None else str(column) for column in columns) + "\n"


def _record(task: MadeUpTask) -> str:
    known = {
        "state": task.state, "version": "3", "lane": "0", "age_bucket": f"{task.priority}:1", "timeout_ms": "1000",
        "attempt": "1", "worker": task.worker_id or "", "ended_ms": task.ended_ms or "", "rank": "1",
        "max_retries": "3", "retries": "0", "losses": "0", "deliveries": "0", "created_ms": task.created_ms,
    }  # fmt: skip
    return "\x1f".join(map(str, (NEWEST_FORMAT, *(known.get(name, "") for name in NAMES), "")))


def _in_blocks(lines: Iterable[str], size: int = 5_000) -> Iterable[str]:
    block: list[str] = []
    for line in lines:
        block.append(line)
        if len(block) == size:
            yield "".join(block)
            block = []
    yield "".join(block)
