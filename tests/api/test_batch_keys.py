"""The Idempotency-Key of a batch stands for the whole of it."""

import asyncio

import httpx
import pytest

from tests.api.bench import Json, assert_problem
from tests.kit import Kit
from tideq.queue_core.task_id import TaskIds

BATCH = "/api/v1/tasks/batch"
ALIKE: list[Json] = [{"task_type": "resize"}] * 3
VARIED: list[Json] = [{"task_type": name, "parameters": {"n": name}} for name in ("a", "b", "c")]


async def _post(http: httpx.AsyncClient, tasks: list[Json], key: str | None = '"k"') -> httpx.Response:
    return await http.post(BATCH, json={"tasks": tasks}, headers={} if key is None else {"Idempotency-Key": key})


def _ids(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 201, answer.text
    return [task["task_id"] for task in answer.json()["tasks"]]


async def _depth(kit: Kit) -> int:
    return (await kit.insight.stats()).total_depth


@pytest.mark.parametrize("tasks", [ALIKE, VARIED], ids=["alike", "varied"])
async def test_the_same_batch_again_is_answered_with_the_same_tasks(
    http: httpx.AsyncClient, kit: Kit, tasks: list[Json]
) -> None:
    first, again, bare = [_ids(await _post(http, tasks, key)) for key in ('"k"', '"k"', "k")]

    assert first == again == bare
    assert (len(set(first)), await _depth(kit)) == (3, 3)


async def test_the_same_batch_at_the_same_time_is_made_once(http: httpx.AsyncClient, kit: Kit) -> None:
    answers = await asyncio.gather(*(_post(http, VARIED) for _ in range(20)))

    assert len({tuple(_ids(answer)) for answer in answers}) == 1
    assert await _depth(kit) == 3


@pytest.mark.parametrize(
    "other",
    [
        ALIKE[:2],
        ALIKE * 2,
        [*ALIKE[:2], {"task_type": "crawl"}],
        [{"task_type": "resize", "priority": "high"}, *ALIKE[1:]],
    ],
    ids=["shorter", "longer", "another last one", "another first one"],
)
async def test_another_batch_with_the_same_key_is_refused_whole(
    http: httpx.AsyncClient, kit: Kit, other: list[Json]
) -> None:
    await _post(http, ALIKE)
    before = await kit.dump()

    answer = await _post(http, other)

    assert_problem(answer, 422, "idempotency-conflict")
    assert await kit.dump() == before


async def test_the_same_tasks_in_another_order_are_another_batch(http: httpx.AsyncClient, kit: Kit) -> None:
    await _post(http, VARIED)

    assert_problem(await _post(http, VARIED[::-1]), 422, "idempotency-conflict")


async def test_another_key_makes_other_tasks(http: httpx.AsyncClient, kit: Kit) -> None:
    one, other, none = [_ids(await _post(http, ALIKE, key)) for key in ('"k"', '"l"', None)]

    assert len({*one, *other, *none}) == 9


async def test_a_task_with_a_key_of_its_own_keeps_it(http: httpx.AsyncClient, kit: Kit) -> None:
    tasks: list[Json] = [{"task_type": "resize", "idempotency_key": "mine"}, {"task_type": "resize"}]

    first = _ids(await _post(http, tasks))
    single = await http.post("/api/v1/tasks", json=tasks[0])

    assert single.json()["task_id"] == first[0]
    assert _ids(await _post(http, tasks)) == first
    assert (await kit.read(first[0])).definition.idempotency_key == "mine"


async def test_tasks_with_ids_of_their_own_are_known_again_by_the_key(http: httpx.AsyncClient, kit: Kit) -> None:
    own: list[Json] = [{"task_type": "resize", "task_id": TaskIds().new()} for _ in range(3)]

    first, again = [_ids(await _post(http, own)) for _ in range(2)]

    assert first == again == [task["task_id"] for task in own]
    assert await _depth(kit) == 3
    assert_problem(await _post(http, ALIKE), 422, "idempotency-conflict")


async def test_a_batchs_key_is_no_single_tasks_key(http: httpx.AsyncClient, kit: Kit) -> None:
    (in_batch,) = _ids(await _post(http, ALIKE[:1]))

    alone = await http.post("/api/v1/tasks", json=ALIKE[0], headers={"Idempotency-Key": '"k"'})

    assert alone.status_code == 201
    assert alone.json()["task_id"] != in_batch


@pytest.mark.parametrize(
    ("key", "status"),
    [("k" * 250, 201), ("k" * 251, 422), ('""', 422), ("", 422)],
    ids=["250", "251", "quotes", "none"],
)
async def test_a_key_that_is_none_is_refused(http: httpx.AsyncClient, kit: Kit, key: str, status: int) -> None:
    answer = await _post(http, [{"task_type": "resize"}] * 1000, key)

    assert answer.status_code == status
    assert await _depth(kit) == (1000 if status == 201 else 0)
