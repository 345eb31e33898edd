"""Duties that fail are told, counted and begun anew, each by itself."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from tideq.queue_core.background import background_task, run_all
from tideq.queue_core.duties import LONGEST_PAUSE_SECONDS, STALE_AFTER_SECONDS, Duties, DutiesEnded, Duty
from tideq.queue_core.errors import HistoryRefused, StoreUnavailable


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def duties(clock: Clock) -> Duties:
    return Duties(clock=clock)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Makes the pauses of duties take no time, and returns them. Other modules sleep as ever."""
    seen: list[float] = []
    sleep = asyncio.sleep

    async def at_once(seconds: float) -> None:
        seen.append(seconds)
        await sleep(0)

    patched = SimpleNamespace(**(vars(asyncio) | {"sleep": at_once}))
    monkeypatch.setattr("tideq.queue_core.duties.asyncio", patched)
    return seen


async def so_that(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)


def restarts(duties: Duties, name: str) -> float:
    found = duties.counters.samples("p")["tideq_duty_restarts_total"][("p", name)]
    assert isinstance(found, float)
    return found


def failing(times: int, error: BaseException) -> tuple[Callable[[], Awaitable[None]], list[int]]:
    """Fails so often, and then no more."""
    rounds: list[int] = []

    async def do() -> None:
        rounds.append(1)
        if len(rounds) <= times:
            raise error

    return do, rounds


@pytest.mark.parametrize("error", [HistoryRefused("read-only"), KeyError("state"), asyncio.CancelledError()], ids=repr)
async def test_a_duty_that_fails_is_counted_and_begun_anew_while_others_go_on(
    duties: Duties, pauses: list[float], error: BaseException
) -> None:
    do, rounds = failing(3, error)
    other, others = failing(0, error)

    async with background_task(run_all(duties.add_periodic("a", 1, do), duties.add_periodic("b", 1, other))):
        await so_that(lambda: len(rounds) > 5)

    assert restarts(duties, "a") == 3
    assert restarts(duties, "b") == 0
    assert len(others) > 3


async def test_a_failure_is_logged_once_for_each_kind_while_it_lasts_with_its_traceback(
    duties: Duties, pauses: list[float]
) -> None:
    kinds = [HistoryRefused("no grant"), HistoryRefused("no grant"), ValueError("x"), HistoryRefused("no grant")]
    rounds: list[int] = []

    async def do() -> None:
        rounds.append(1)
        if len(rounds) <= len(kinds):
            raise kinds[len(rounds) - 1]

    with capture_logs() as logs:
        async with background_task(duties.add_periodic("a", 1, do)):
            await so_that(lambda: len(rounds) > 5)

    told = [each for each in logs if each["event"] == "duty failed"]
    assert [type(each["exc_info"]) for each in told] == [HistoryRefused, ValueError]
    assert [each["event"] for each in logs][-1] == "duty recovered"


async def test_pauses_grow_to_their_limit_and_begin_anew_after_a_success(duties: Duties, pauses: list[float]) -> None:
    do, rounds = failing(12, StoreUnavailable("away"))

    async with background_task(duties.add_periodic("a", 77, do)):
        await so_that(lambda: len(rounds) > 13)

    failed = pauses[:12]
    assert all(before < after for before, after in zip(failed[:3:2], failed[2:5:2], strict=True))
    assert max(failed) <= LONGEST_PAUSE_SECONDS
    assert failed[-1] >= LONGEST_PAUSE_SECONDS / 2
    assert pauses[12] == 77


async def test_a_duty_is_stale_when_it_fails_from_the_beginning_and_not_after_a_success(
    duties: Duties, clock: Clock, pauses: list[float]
) -> None:
    is_away, rounds = True, 0

    async def do() -> None:
        nonlocal rounds
        rounds += 1
        if is_away:
            raise StoreUnavailable("no store at 127.0.0.1")

    async with background_task(duties.add_periodic("sweep", 1, do)):
        await so_that(lambda: rounds > 2)
        assert [(each.duty, each.error) for each in duties.stale] == [("sweep", "no store at 127.0.0.1")]

        is_away = False
        await so_that(lambda: not duties.stale)
        is_away, since = True, rounds
        await so_that(lambda: rounds > since + 2)
        assert duties.stale == []

        clock.now += STALE_AFTER_SECONDS + 1
        assert [each.duty for each in duties.stale] == ["sweep"]
        assert duties.counters.samples("p")["tideq_duty_stale"][("p", "sweep")] == 1


async def test_a_duty_that_hangs_becomes_stale_and_one_that_waits_does_not(duties: Duties, clock: Clock) -> None:
    async def hang(_duty: Duty) -> None:
        await asyncio.Event().wait()

    async def wait(duty: Duty) -> None:
        with duty.waiting():
            await asyncio.Event().wait()

    async with background_task(run_all(duties.add("hangs", hang, every_seconds=10), duties.add("waits", wait))):
        for _ in range(3):
            await asyncio.sleep(0)
        clock.now += 10 + STALE_AFTER_SECONDS
        assert duties.stale == []
        clock.now += 1
        assert [each.duty for each in duties.stale] == ["hangs"]


@pytest.mark.usefixtures("pauses")
async def test_a_wait_that_lasts_ends_a_failure_and_one_that_lasted_is_no_failure_since_the_beginning(
    duties: Duties, clock: Clock
) -> None:
    connection, rounds = asyncio.Event(), list[int]()

    async def wait_for_a_turn(duty: Duty) -> None:
        if not connection.is_set():
            raise StoreUnavailable("away")
        with duty.waiting():
            while connection.is_set():
                rounds.append(len(rounds))
                await asyncio.sleep(0)

    async with background_task(duties.add("replication", wait_for_a_turn)):
        await so_that(lambda: [each.error for each in duties.stale] == ["away"])
        connection.set()
        await so_that(lambda: len(rounds) > 2)
        clock.now += STALE_AFTER_SECONDS
        assert [each.error for each in duties.stale] == ["away"]
        clock.now += 1
        assert (duties.stale, duties.error_of("replication"), duties.has_done("replication")) == ([], "", False)

        connection.clear()
        await so_that(lambda: bool(duties.error_of("replication")))
        assert duties.stale == []
        clock.now += STALE_AFTER_SECONDS + 1
        assert [each.duty for each in duties.stale] == ["replication"]


async def test_a_duty_that_was_cancelled_from_outside_is_noticed_and_one_that_was_stopped_is_not(
    duties: Duties,
) -> None:
    async def wait(duty: Duty) -> None:
        with duty.waiting():
            await asyncio.Event().wait()

    first, second = duties.start("first", wait), duties.start("second", wait)
    await asyncio.sleep(0)
    await duties.stop(first)
    async with background_task(duties.wait_for_unexpected_end()) as noticing:
        await asyncio.sleep(0)
        assert not noticing.done()
        second.cancel()
        with pytest.raises(DutiesEnded):
            await noticing
