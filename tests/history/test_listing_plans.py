"""Lists at size: what they answer, compared with a filter anyone can read, and how PostgreSQL finds it.

Nothing is timed here. How many rows a page makes the server read is what decides, and that can be counted.
"""

import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from tests.history.made_up import WEEK_MS, MadeUpTask, made_up_tasks, write
from tests.history.plans import ExplainedDatabase, Plan
from tideq.persistence.database import Database
from tideq.persistence.read.filters import TaskFilter
from tideq.persistence.read.task_list import TaskList
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.terms import error_terms, parameter_term, tag_term

TASKS = 200_000
SPAN_MS = 6 * WEEK_MS
PAGE = 50
TASK_TABLES = ("tasks", "task_terms", "dead_letter_tasks")


@dataclass
class Scene:
    database: ExplainedDatabase
    listing: TaskList
    plain: TaskList
    """Without looking at plans, which doubles the work."""
    tasks: list[MadeUpTask]
    """Newest first."""
    end_ms: int

    def instant(self, share: float) -> int:
        return self.end_ms - round(SPAN_MS * (1 - share))

    def wanted(self, build: "Build") -> tuple[TaskFilter, Callable[[MadeUpTask], bool]]:
        return build(self)


Build = Callable[[Scene], tuple[TaskFilter, Callable[[MadeUpTask], bool]]]


@pytest.fixture(scope="module")
async def scene(database_url: str) -> AsyncIterator[Scene]:
    end_ms = time.time_ns() // 1_000_000 - 60_000
    queue_name = uuid.uuid4().hex[:12]
    database = ExplainedDatabase(database_url, queue_name)
    async with database, Database(database_url, queue_name) as plain:
        await migrate(database)
        tasks = made_up_tasks(TASKS, end_ms, SPAN_MS)
        await write(database, tasks, end_ms, SPAN_MS)
        tasks.sort(key=lambda task: task.task_id, reverse=True)
        yield Scene(database, TaskList(database), TaskList(plain), tasks, end_ms)


def _states(*states: str) -> Build:
    return lambda _: (TaskFilter(states=states), lambda task: task.state in states)


def _terms(*terms: str) -> Build:
    return lambda _: (TaskFilter(terms=terms), lambda task: task.terms.issuperset(terms))


SINGLE: dict[str, Build] = {
    "nothing asked for": lambda _: (TaskFilter(), lambda _: True),
    "a common state": _states("completed"),
    "a rare state": _states("dead_letter"),
    "a state only at the end": _states("queued"),
    "a state only long ago": _states("cancelled"),
    "a state nobody is in": _states("assigned"),
    "some states": _states("failed", "dead_letter", "queued"),
    "every state": _states("queued", "assigned", "executing", "completed", "failed", "cancelled", "dead_letter"),
    "a common type": lambda _: (TaskFilter(task_type="resize"), lambda task: task.task_type == "resize"),
    "a rare type": lambda _: (TaskFilter(task_type="rare"), lambda task: task.task_type == "rare"),
    "a type nobody has": lambda _: (TaskFilter(task_type="none"), lambda _: False),
    "a priority": lambda _: (TaskFilter(priority="high"), lambda task: task.priority == "high"),
    "a worker": lambda _: (TaskFilter(worker_id="w7"), lambda task: task.worker_id == "w7"),
    "a trace": lambda scene: _trace(scene.tasks),
    "its own trace": lambda scene: _own_trace(scene.tasks),
    "a common tag": _terms(tag_term("env", "prod")),
    "a rare tag": _terms(tag_term("customer", "c17")),
    "a tag nobody has": _terms(tag_term("env", "moon")),
    "a parameter": _terms(parameter_term("resize", "width", "77")),
    "a word": _terms(*error_terms("Upstream")),
    "a range of time": lambda scene: _between(scene.instant(0.4), scene.instant(0.6)),
    "the time since": lambda scene: _between(scene.instant(0.9), None),
    "the time before": lambda scene: _between(None, scene.instant(0.2)),
}

PLENTY = [
    "nothing asked for", "a common state", "a rare state", "a state only at the end", "some states", "every state",
    "a common type", "a priority", "a worker", "a common tag", "a word", "a range of time", "the time before",
]  # fmt: skip


def _trace(tasks: list[MadeUpTask]) -> tuple[TaskFilter, Callable[[MadeUpTask], bool]]:
    trace_id = next(task.trace_id for task in tasks[TASKS // 2 :] if task.trace_id)
    return TaskFilter(trace_id=trace_id), lambda task: task.trace_id == trace_id


def _own_trace(tasks: list[MadeUpTask]) -> tuple[TaskFilter, Callable[[MadeUpTask], bool]]:
    """Of a task that came without one."""
    task_id = next(task.task_id for task in tasks[TASKS // 2 :] if not task.trace_id)
    return TaskFilter(trace_id=task_id.replace("-", "")), lambda task: task.task_id == task_id


def _between(start_ms: int | None, end_ms: int | None) -> tuple[TaskFilter, Callable[[MadeUpTask], bool]]:
    return (
        TaskFilter(created_from_ms=start_ms, created_below_ms=end_ms),
        lambda task: (start_ms or 0) <= task.created_ms < (end_ms or 1 << 60),
    )


def both(*parts: Build) -> Build:
    """All of them together."""

    def build(scene: Scene) -> tuple[TaskFilter, Callable[[MadeUpTask], bool]]:
        built = [part(scene) for part in parts]
        wanted = TaskFilter(terms=tuple(term for each, _ in built for term in each.terms))
        for each, _ in built:
            wanted = msgspec.structs.replace(wanted, **_given(each))
        return wanted, lambda task: all(holds(task) for _, holds in built)

    return build


def _given(wanted: TaskFilter) -> dict[str, Any]:
    """Without the terms, of which there may be many."""
    return {name: value for name, value in msgspec.structs.asdict(wanted).items() if value and name != "terms"}


COMBINED: dict[str, Build] = {
    "type and state": both(SINGLE["a common type"], SINGLE["a rare state"]),
    "type and states": both(SINGLE["a common type"], SINGLE["some states"]),
    "a type that never gets there": both(SINGLE["a rare type"], SINGLE["a state nobody is in"]),
    "common priority, rare tag": both(
        lambda _: (TaskFilter(priority="medium"), lambda task: task.priority == "medium"), SINGLE["a rare tag"]
    ),
    "common state, rare type": both(SINGLE["a common state"], SINGLE["a rare type"]),
    "common tag, rare state": both(SINGLE["a common tag"], SINGLE["a rare state"]),
    "two tags": both(SINGLE["a common tag"], SINGLE["a rare tag"]),
    "words and a tag": both(_terms(*error_terms("disk FULL")), SINGLE["a common tag"]),
    "worker, type and priority": both(SINGLE["a worker"], SINGLE["a common type"], SINGLE["a priority"]),
    "state in a range of time": both(SINGLE["a rare state"], SINGLE["a range of time"]),
    "what ended before": lambda scene: (
        TaskFilter(states=("failed",), ended_below_ms=scene.instant(0.3)),
        lambda task: task.state == "failed" and (task.ended_ms or 0) < scene.instant(0.3),
    ),
    "trace and state": both(SINGLE["a trace"], SINGLE["every state"]),
    "never together": both(SINGLE["a common state"], SINGLE["a word"]),
    "everything at once": both(
        SINGLE["a rare state"],
        SINGLE["a common type"],
        SINGLE["a common tag"],
        SINGLE["a word"],
        SINGLE["the time since"],
    ),
}


COUNTED = [
    "nothing asked for", "a rare state", "some states", "a state nobody is in", "a rare type", "a common tag",
    "a rare tag", "a range of time", "common priority, rare tag", "words and a tag", "never together",
]  # fmt: skip


@pytest.mark.parametrize("name", [*SINGLE, *COMBINED])
async def test_pages_hold_what_a_plain_filter_finds_and_in_its_order(scene: Scene, name: str) -> None:
    wanted, holds = scene.wanted({**SINGLE, **COMBINED}[name])
    expected = [task.task_id for task in scene.tasks if holds(task)]

    found: list[str] = []
    page = await scene.plain.page(wanted)
    found += [task.task_id for task in page.tasks]
    while page.next_cursor and len(found) < 4 * PAGE:
        page = await scene.plain.page(wanted, cursor=page.next_cursor)
        found += [task.task_id for task in page.tasks]

    assert found == expected[: len(found)]
    assert len(found) >= min(len(expected), 4 * PAGE)
    assert (page.next_cursor is None) == (len(found) == len(expected))


@pytest.mark.parametrize("name", SINGLE)
async def test_one_filter_reads_a_page_and_little_more(scene: Scene, name: str) -> None:
    wanted, _ = scene.wanted(SINGLE[name])
    scene.database.plans.clear()

    await scene.listing.page(wanted)

    for plan in scene.database.plans:
        _assert_by_index(plan, sorted_at_most=_key_count(plan) * (PAGE + 1))
        _assert_reads_a_page(plan)


@pytest.mark.parametrize("name", PLENTY)
async def test_a_page_from_the_middle_reads_no_more_than_the_first(scene: Scene, name: str) -> None:
    wanted, _ = scene.wanted(SINGLE[name])
    first = await scene.listing.page(wanted, limit=500)
    assert first.next_cursor is not None
    scene.database.plans.clear()

    await scene.listing.page(wanted, cursor=first.next_cursor)

    for plan in scene.database.plans:
        _assert_reads_a_page(plan)


def _key_count(plan: Plan) -> int:
    """Of the path with the most, where several are compared."""
    return max(len(value) for name, value in plan.parameters.items() if name.startswith("keys"))


def _assert_reads_a_page(plan: Plan) -> None:
    """Of each key; twice where a term's tasks are read too. Every partition may give a row more than is used."""
    assert plan.rows_read() <= 2 * _key_count(plan) * (PAGE + 10)


@pytest.mark.parametrize("name", COMBINED)
async def test_filters_together_are_found_by_index_too(scene: Scene, name: str) -> None:
    wanted, _ = scene.wanted(COMBINED[name])
    scene.database.plans.clear()

    await scene.listing.page(wanted)

    for plan in scene.database.plans:
        _assert_by_index(plan, sorted_at_most=_key_count(plan) * (PAGE + 1))


@pytest.mark.parametrize(
    ("name", "rare"),
    [
        ("common priority, rare tag", "a rare tag"),
        ("common state, rare type", "a rare type"),
        ("two tags", "a rare tag"),
        ("trace and state", "a trace"),
    ],
)
async def test_the_rare_filter_leads(scene: Scene, name: str, rare: str) -> None:
    """Whatever the common one matches, no more is read than the rare one's tasks, and what comparing them costs."""
    wanted, _ = scene.wanted(COMBINED[name])
    _, is_rare = scene.wanted(SINGLE[rare])
    rare_count = sum(map(is_rare, scene.tasks))
    scene.database.plans.clear()

    await scene.listing.page(wanted)

    pages = [plan for plan in scene.database.plans if "small_bytes" in plan.parameters]
    assert sum(plan.rows_read() for plan in pages) <= 4 * rare_count + 100


async def test_a_first_page_opens_few_partitions(scene: Scene) -> None:
    """And so costs the same however long history lasts."""
    scene.database.plans.clear()

    await scene.listing.page(TaskFilter(states=("completed",)))

    (plan,) = scene.database.plans
    for table in ("tasks_", "task_events_"):
        assert sum(name.startswith(table) for name in plan.partitions_opened()) < SPAN_MS // WEEK_MS


@pytest.mark.parametrize("name", ["a common state", "a trace", "its own trace"])
async def test_what_is_at_the_end_or_short_is_asked_for_once(scene: Scene, name: str) -> None:
    """A trace hardly ever fills a page: looking for more of it piece by piece would be in vain."""
    wanted, _ = scene.wanted(SINGLE[name])
    scene.database.plans.clear()

    await scene.listing.page(wanted)

    assert len(scene.database.plans) == 1


@pytest.mark.parametrize("name", ["nothing asked for", "a common state", "a rare type", "a worker", "a common tag"])
async def test_a_path_that_holds_to_the_filter_leaves_nothing_to_check(scene: Scene, name: str) -> None:
    wanted, _ = scene.wanted(SINGLE[name])
    scene.database.plans.clear()

    await scene.listing.page(wanted)

    assert [node["Filter"] for plan in scene.database.plans for node in plan.nodes() if "Filter" in node] == []


@pytest.mark.parametrize("name", COUNTED)
async def test_a_count_is_exact_or_says_that_it_is_not(scene: Scene, name: str) -> None:
    wanted, holds = scene.wanted({**SINGLE, **COMBINED}[name])
    expected = sum(map(holds, scene.tasks))
    scene.database.plans.clear()

    count = await scene.listing.count(wanted)

    if count.is_exact:
        assert count.total == expected
    else:
        assert count.total <= expected
        assert scene.database.plans[-1].rows_read() > 9_000, "it could have looked further"
    assert scene.database.plans[-1].rows_read() <= 3 * 10_100 * len(scene.database.plans[-1].parameters["keys"])
    _assert_by_index(scene.database.plans[-1], sorted_at_most=0)


async def test_ids_are_all_met_once(scene: Scene) -> None:
    wanted, holds = scene.wanted(COMBINED["what ended before"])
    expected = [task.task_id for task in scene.tasks if holds(task)]

    found = [task_id async for batch in scene.plain.ids(wanted, 100) for task_id in batch]

    assert found == expected


def _assert_by_index(plan: Plan, sorted_at_most: int) -> None:
    for node in plan.scans():
        if node["Relation Name"].startswith(TASK_TABLES):
            assert node["Node Type"] in ("Index Scan", "Index Only Scan"), node
    assert plan.rows_sorted() <= sorted_at_most
