"""After ten minutes without a store everything is back within ten seconds of its return: no pause grows long.

Pauses take no time here and are added up, and the store returns at the worst moment: just after an attempt has failed.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from psycopg_pool.pool_async import AddConnection, MaintenanceTask

from tests.stores import free_port
from tideq.api.edge.problems import DEFAULT_RETRY_AFTER_SECONDS
from tideq.persistence import database as database_module
from tideq.persistence.database import Database
from tideq.persistence.recovery import open_store
from tideq.queue_core import duties as duties_module
from tideq.queue_core.background import background_task
from tideq.queue_core.duties import Duties
from tideq.queue_core.errors import HistoryUnavailable, StoreUnavailable
from tideq.workers.runtime.backoff import PollBackoff

AWAY_SECONDS = 600.0
BACK_SECONDS = 10.0
MOST_PAUSES = 5_000


class Outage:
    def __init__(self) -> None:
        self.pauses: list[float] = []

    @property
    def elapsed(self) -> float:
        return sum(self.pauses)

    @property
    def is_over(self) -> bool:
        return self.elapsed >= AWAY_SECONDS

    @property
    def left_seconds(self) -> float:
        """How long somebody still pauses after it, at worst."""
        assert self.is_over
        return max(self.pauses)

    async def pause(self, seconds: float) -> None:
        assert len(self.pauses) < MOST_PAUSES, "a busy loop"
        self.pauses.append(seconds)
        await REAL_SLEEP(0)


REAL_SLEEP = asyncio.sleep


@pytest.fixture(autouse=True)
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    outage = Outage()
    monkeypatch.setattr(asyncio, "sleep", outage.pause)
    return outage


async def _duty(outage: Outage, longest_pause_seconds: float) -> None:
    is_back = asyncio.Event()

    async def work() -> None:
        if not outage.is_over:
            raise StoreUnavailable("away")
        is_back.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(20), background_task(Duties().add_periodic("any", 1, work, longest_pause_seconds)):
        await is_back.wait()


async def _worker(outage: Outage, told_seconds: float | None) -> None:
    patience = PollBackoff()
    while not outage.is_over:
        await patience.wait(told_seconds)


ALONE: dict[str, Callable[[Outage], Awaitable[None]]] = {
    "a duty": lambda outage: _duty(outage, duties_module.LONGEST_PAUSE_SECONDS),
    "a worker that reaches nobody": lambda outage: _worker(outage, None),
}
WHILE_CLOSED: dict[str, Callable[[Outage], Awaitable[None]]] = {
    "what opens the store": lambda outage: _duty(outage, open_store.LONGEST_PAUSE_SECONDS),
    "a worker that is refused": lambda outage: _worker(outage, DEFAULT_RETRY_AFTER_SECONDS),
}


@pytest.mark.parametrize("waits", ALONE.values(), ids=ALONE)
async def test_after_ten_minutes_each_is_back_within_ten_seconds_and_leaves_time_to_open_the_store(
    outage: Outage, waits: Callable[[Outage], Awaitable[None]]
) -> None:
    await waits(outage)

    assert outage.left_seconds + open_store.LONGEST_PAUSE_SECONDS < BACK_SECONDS * 0.8


@pytest.mark.parametrize("waits", WHILE_CLOSED.values(), ids=WHILE_CLOSED)
async def test_after_ten_minutes_what_others_wait_for_is_back_within_two_seconds(
    outage: Outage, waits: Callable[[Outage], Awaitable[None]]
) -> None:
    await waits(outage)

    assert outage.left_seconds < BACK_SECONDS / 5


async def test_after_ten_minutes_without_postgresql_readers_connect_within_ten_seconds(
    outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr("psycopg_pool.pool_async.monotonic", lambda: outage.elapsed)
    database = Database(f"postgresql://tideq@127.0.0.1:{free_port()}/tideq")
    pool = database._pool  # pyright: ignore[reportPrivateUsage]
    schedule = pool.schedule_task

    async def at_once(task: MaintenanceTask, delay: float) -> None:
        if isinstance(task, AddConnection):
            await outage.pause(delay)
            await schedule(task, 0)

    monkeypatch.setattr(pool, "schedule_task", at_once)

    async with database:
        while not outage.is_over:
            with pytest.raises(HistoryUnavailable):
                async with database.reading():
                    pass

    assert outage.left_seconds < BACK_SECONDS / 2
