"""Dead letters at size: what the list answers, compared with a filter anyone can read, and how PostgreSQL finds it."""

import random
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest

from tests.history.made_up import WEEK_MS, MadeUpTask, made_up_tasks, write
from tests.history.plans import ExplainedDatabase
from tideq.persistence.dead_letters.dead_letter_list import DeadLetterFilter, DeadLetters
from tideq.persistence.dead_letters.patterns import pattern_of
from tideq.persistence.schema.migrations import migrate
from tideq.queue_core.states import TaskState

TASKS = 20_000
SPAN_MS = 4 * WEEK_MS
PAGE = 50
REASONS = ("retries_exhausted", "poison", "discarded")


class Death(NamedTuple):
    task: MadeUpTask
    died_ms: int
    reason: str
    pattern: str


@dataclass
class Scene:
    database: ExplainedDatabase
    dead_letters: DeadLetters
    deaths: list[Death]
    """The latest first."""


@pytest.fixture(scope="module")
async def scene(database_url: str) -> AsyncIterator[Scene]:
    end_ms = time.time_ns() // 1_000_000
    database = ExplainedDatabase(database_url, uuid.uuid4().hex[:12])
    async with database:
        await migrate(database)
        tasks = [replace(task, state=TaskState.DEAD_LETTER) for task in made_up_tasks(TASKS, end_ms, SPAN_MS)]
        await write(database, tasks, end_ms, SPAN_MS)
        deaths = _deaths(tasks, end_ms)
        await _bury(database, deaths)
        yield Scene(database, DeadLetters(database, 10 * SPAN_MS), deaths)


def _deaths(tasks: list[MadeUpTask], end_ms: int) -> list[Death]:
    """Long after submission, so in another order."""
    chance = random.Random(2)
    found: list[Death] = []
    for task in tasks:
        reason, message = chance.choice(REASONS), f"code {chance.choice('abcdefgh')}"
        died_ms = chance.randrange(task.created_ms, end_ms)
        found.append(Death(task, died_ms, reason, pattern_of(task.task_type, reason, message)))
    return sorted(found, key=lambda death: (death.died_ms, death.task.task_id), reverse=True)


async def _bury(database: ExplainedDatabase, deaths: list[Death]) -> None:
    async with database.session() as connection:
        async with connection.cursor() as cursor, cursor.copy("COPY dead_letter_tasks FROM STDIN") as sink:
            for task, died_ms, reason, pattern in deaths:
                died_at = f"{died_ms / 1000:.3f}"
                await sink.write_row(
                    (task.task_id, _instant(died_at), task.task_type, "high", reason, pattern, "code", True)
                )
        await connection.execute(
            "INSERT INTO dead_letter_patterns SELECT pattern, min(task_type), min(reason), min(message), min(died_at), "
            "max(died_at), count(*) FROM dead_letter_tasks GROUP BY pattern"
        )
        await connection.execute("ANALYZE")


def _instant(seconds: str) -> str:
    whole, _, milliseconds = seconds.partition(".")
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(int(whole))) + f".{milliseconds}Z"


def _some(scene: Scene) -> Death:
    return scene.deaths[len(scene.deaths) // 3]


Build = Callable[[Death], tuple[DeadLetterFilter, Callable[[Death], bool]]]
FILTERS: dict[str, Build] = {
    "all": lambda _: (DeadLetterFilter(), lambda _: True),
    "a type": lambda _: (DeadLetterFilter(task_type="crawl"), lambda death: death.task.task_type == "crawl"),
    "a reason": lambda _: (DeadLetterFilter(reason="poison"), lambda death: death.reason == "poison"),
    "a pattern": lambda some: (
        DeadLetterFilter(pattern=some.pattern),
        lambda death: death.pattern == some.pattern,
    ),
    "before": lambda some: (
        DeadLetterFilter(before_ms=some.died_ms),
        lambda death: death.died_ms < some.died_ms,
    ),
    "type, reason and before": lambda some: (
        DeadLetterFilter(task_type="rare", reason="poison", before_ms=some.died_ms),
        lambda death: death.task.task_type == "rare" and death.reason == "poison" and death.died_ms < some.died_ms,
    ),
}


@pytest.mark.parametrize("name", FILTERS)
async def test_pages_hold_what_a_plain_filter_finds_and_in_its_order(scene: Scene, name: str) -> None:
    wanted, holds = FILTERS[name](_some(scene))
    expected = [death.task.task_id for death in scene.deaths if holds(death)]
    found: list[str] = []

    page = await scene.dead_letters.page(wanted)
    found += [letter.task.task_id for letter in page.dead_letters]
    while page.next_cursor and len(found) < 3 * PAGE:
        page = await scene.dead_letters.page(wanted, cursor=page.next_cursor)
        found += [letter.task.task_id for letter in page.dead_letters]

    assert found == expected[: len(found)]
    assert len(found) == min(len(expected), 3 * PAGE)
    assert (await scene.dead_letters.count(wanted))[0] == len(expected)


@pytest.mark.parametrize("name", [name for name in FILTERS if "," not in name])
async def test_a_page_reads_a_page_and_little_more_by_index(scene: Scene, name: str) -> None:
    wanted, _ = FILTERS[name](_some(scene))
    scene.database.plans.clear()

    await scene.dead_letters.page(wanted)

    (plan,) = scene.database.plans
    assert {node["Node Type"] for node in plan.scans()} <= {"Index Scan", "Index Only Scan"}
    # Each letter, its task's size and its task; every partition may give a letter more than is used.
    assert plan.rows_read() <= 3 * (PAGE + 10)
    assert plan.rows_sorted() <= PAGE + 1


async def test_patterns_count_every_death_once_by_index(scene: Scene) -> None:
    scene.database.plans.clear()

    patterns = await scene.dead_letters.patterns()

    assert {each.pattern: each.dead_count for each in patterns} == Counter(death.pattern for death in scene.deaths)
    counts = [each.dead_count for each in patterns]
    assert counts == sorted(counts, reverse=True)
    (plan,) = scene.database.plans
    scans = {node["Node Type"] for node in plan.scans() if node["Relation Name"] != "dead_letter_patterns"}
    assert scans <= {"Index Scan", "Index Only Scan"}
    assert plan.rows_read() <= TASKS + 2 * len(patterns)
