"""Races of those who hand in work: one task a key, one replay a dead letter."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tests.kit import Kit, make_kit
from tests.races.outbox import audit
from tests.races.racing import ROUNDS, Sides, assert_contested
from tests.stores import StoreUnderTest
from tideq.queue_core.attempts import Failure
from tideq.queue_core.errors import IdempotencyConflict, WrongState
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import NewTask, Submitted

PRODUCER_COUNT = 50
KEY_COUNT = 200


@pytest.fixture
async def producers(kit: Kit, store: StoreUnderTest) -> AsyncIterator[list[Kit]]:
    clients = [store.client() for _ in range(PRODUCER_COUNT)]
    yield [await make_kit(client, kit.settings.queue_name, kit.settings) for client in clients]
    for client in clients:
        await client.aclose()


async def test_one_idempotency_key_from_fifty_clients_makes_one_task(kit: Kit, producers: list[Kit]) -> None:
    luck, firsts = random.Random(7), Counter[int]()
    for number in range(KEY_COUNT):
        task = NewTask(task_type="resize", idempotency_key=f"order-{number}")
        luck.shuffle(producers)

        answers = await asyncio.gather(*(producer.queue.submit(task) for producer in producers))

        assert len({answer.task_id for answer in answers}) == 1
        (first,) = [place for place, answer in enumerate(answers) if answer.is_new]
        firsts[id(producers[first])] += 1

    assert len(firsts) > PRODUCER_COUNT // 2
    stories = await audit(kit, endings=0)
    assert (len(stories), {len(story) for story in stories.values()}) == (KEY_COUNT, {1})


async def test_of_two_bodies_under_one_key_one_becomes_the_task(sides: Sides) -> None:
    wins: Counter[str] = Counter()
    for number in range(ROUNDS):
        bodies = [
            NewTask(task_type="resize", idempotency_key=f"order-{number}", parameters=body)
            for body in (b'{"side":"left"}', b'{"side":"right"}')
        ]

        answers = await sides.race(sides.left.queue.submit(bodies[0]), sides.right.queue.submit(bodies[1]))

        (made,) = [answer for answer in answers if isinstance(answer, Submitted)]
        (refused,) = [answer for answer in answers if isinstance(answer, IdempotencyConflict)]
        assert refused.task_id == made.task_id
        winner = "left" if answers[0] is made else "right"
        assert (await sides.left.read(made.task_id)).definition.parameters == f'{{"side":"{winner}"}}'.encode()
        wins[winner] += 1

    assert_contested(wins, "left", "right")
    assert len(await audit(sides.left, endings=0)) == ROUNDS


async def test_a_replay_pressed_twice_replays_once(sides: Sides) -> None:
    tasks = await sides.executing(max_retries=0)
    await sides.left.attempts.fail("w1", [Failure(task.task_id, task.lease, b"{}") for task in tasks])
    wins: Counter[str] = Counter()
    for task in tasks:
        answers = await sides.race(sides.left.queue.replay(task.task_id), sides.right.queue.replay(task.task_id))

        (refused,) = [answer for answer in answers if isinstance(answer, WrongState)]
        assert (refused.state, (await sides.left.read(task.task_id)).state) == ("queued", TaskState.QUEUED)
        assert 5 in answers
        wins["left" if answers[0] == 5 else "right"] += 1

    assert_contested(wins, "left", "right")
    assert {len(story) for story in (await audit(sides.left)).values()} == {5}


async def test_a_replay_and_a_retry_of_one_dead_letter_revive_it_once(sides: Sides) -> None:
    tasks = await sides.executing(max_retries=0)
    await sides.left.attempts.fail("w1", [Failure(task.task_id, task.lease, b"{}") for task in tasks])
    wins: Counter[str] = Counter()
    for task in tasks:
        answers = await sides.race(sides.left.queue.replay(task.task_id), sides.right.queue.retry(task.task_id))

        assert sorted(isinstance(answer, WrongState) for answer in answers) == [False, True]
        wins[(await sides.left.read(task.task_id)).reason.value] += 1

    assert_contested(wins, "replayed", "retried")
    await audit(sides.left)
