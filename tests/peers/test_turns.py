"""The peers' harness itself, with the floor's driver: orders and answers, a whole turn, and drivers that fail."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.peers import processes
from bench.peers.catalogue import PEERS, Peer
from bench.peers.environments import DRIVERS, Environments
from bench.peers.processes import DriverClient, DriverFailed
from bench.peers.rounds import BEST, Plan, take_turns
from bench.peers.samples import Amount
from bench.peers.stores import PostgresServer
from bench.peers.turn import TurnContext
from tests.stores import StoreUnderTest

FLOOR = Peer("floor", "floor.py", "ours", "redis", {"bulk": 100})
"""By the project's own interpreter, which has all it needs."""
HTTP_FLOOR = Peer("http floor", "http_floor.py", "ours", "redis", {"bulk": 8}, processes=False)
ONCE = Plan(1, 1, {BEST: Amount(0.1, 0.5, 20, crowd=64)})
DIES = """
import sys
import protocol
from floor import Floor

class Dies(Floor):
    async def submit_many(self, count):
        sys.exit("error: out of luck")

    def work(self):
        {work}

protocol.main(Dies)
"""
FEW = """
import protocol
from floor import Floor

class Few(Floor):
    under_way = 0

    async def submit(self, sent):
        self.under_way += 1
        assert self.under_way <= 32
        await super().submit(sent)
        self.under_way -= 1

protocol.main(Few)
"""


@pytest.fixture
def place(tmp_path: Path) -> TurnContext:
    """No turn of these tests needs a PostgreSQL."""
    return TurnContext(tmp_path, Environments(tmp_path / "peers"), PostgresServer(""), has_aof=True)


@pytest.fixture
async def driver(place: TurnContext, client: object, store: StoreUnderTest) -> AsyncIterator[DriverClient]:
    command, environ = place.environments.command(FLOOR), place.environments.environ()
    settings = {"redis_url": store.url}
    async with processes.client(command, settings, environ, place.folder / "log") as (driver, greeting):
        assert greeting["has_async"]
        yield driver


async def test_every_order_is_answered_with_what_was_done(driver: DriverClient) -> None:
    before = (await driver.order("left"))["left"]
    bulk = await driver.order("bulk", seconds=0.02, batch=10)
    single = await driver.order("single", seconds=0.02, at_once=1)
    at_once = await driver.order("single", seconds=0.02, at_once=4)
    paced = await driver.order("paced", count=3, per_second=1_000)
    left = (await driver.order("left"))["left"]

    assert bulk["count"] >= 10
    assert bulk["count"] % 10 == 0
    assert at_once["count"] >= 4
    assert paced["count"] == 3
    assert left - before == bulk["count"] + single["count"] + at_once["count"] + paced["count"]


async def test_an_order_that_cannot_be_done_is_an_error_and_the_last(driver: DriverClient) -> None:
    with pytest.raises(DriverFailed, match="KeyError"):
        await driver.order("dance")
    with pytest.raises(DriverFailed, match="the driver ended"):
        await driver.order("left")


async def test_a_turn_gives_every_figure(place: TurnContext) -> None:
    results = await take_turns([FLOOR], ONCE, place, lambda _line: None)

    (sample,) = results["floor"].samples[BEST]
    submitted = (sample.single, sample.single_at_once, sample.single_crowd, sample.bulk)
    assert all(rate and rate > 0 for rate in (*submitted, sample.processed, sample.p50_ms, sample.p99_ms))
    assert set(sample.cpu_us) == {"client", "workers", "store"}
    assert sample.total_us == sum(sample.cpu_us.values())
    assert sample.bytes_a_task
    assert sample.bytes_a_task > 40, "a task of the floor is 40 bytes"


async def test_the_floor_behind_http_gives_every_figure_of_submitting(place: TurnContext) -> None:
    results = await take_turns([HTTP_FLOOR], ONCE, place, lambda _line: None)

    (sample,) = results["http floor"].samples[BEST]
    assert all(rate and rate > 0 for rate in (sample.single, sample.single_at_once, sample.single_crowd, sample.bulk))
    assert sample.bytes_a_task
    assert sample.bytes_a_task > 40, "every call is a write"


async def test_a_library_that_cannot_have_so_many_calls_at_once_lacks_only_that_figure(place: TurnContext) -> None:
    script = place.folder / "few.py"
    script.write_text(FEW)
    few = Peer("few", str(script), "ours", "redis", {"bulk": 100})

    results = await take_turns([few], ONCE, place, lambda _line: None)

    (sample,) = results["few"].samples[BEST]
    assert sample.single_at_once
    assert sample.single_crowd is None
    assert results["few"].problem == ""


@pytest.mark.parametrize(
    ("work", "said"),
    [("sys.exit('error: no work today')", "a worker ended: error: no work today"), ("super().work()", "out of luck")],
    ids=["worker", "client"],
)
async def test_a_driver_that_dies_is_told_of_and_the_rest_goes_on(place: TurnContext, work: str, said: str) -> None:
    script, lines = place.folder / "dies.py", list[str]()
    script.write_text(DIES.format(work=work))
    dying = Peer("dying", str(script), "ours", "redis", {"bulk": 100})

    results = await take_turns([dying, FLOOR], ONCE, place, lines.append)

    assert said in results["dying"].problem
    assert any(line.startswith("dying failed") for line in lines)
    assert not results["dying"].samples
    assert len(results["floor"].samples[BEST]) == 1


async def test_a_peer_that_failed_twice_takes_no_third_turn(place: TurnContext) -> None:
    script, lines = place.folder / "ends.py", list[str]()
    script.write_text("raise SystemExit('error: not today')")
    three = Plan(3, 3, ONCE.kinds)

    results = await take_turns([Peer("ends", str(script), "ours", "redis", {})], three, place, lines.append)

    assert results["ends"].problem == "the driver ended: error: not today"
    assert [line for line in lines if line.startswith("round")] == ["round 1 of 3: ends", "round 2 of 3: ends"]


async def test_a_peer_that_cannot_be_installed_takes_no_turn_and_is_told_of(place: TurnContext) -> None:
    nowhere, lines = Peer("nowhere", "floor.py", "python", "redis", {}, ("./is-not-there",)), list[str]()

    results = await take_turns([nowhere], ONCE, place, lines.append)

    assert results["nowhere"].problem.startswith("cannot be installed")
    assert lines == [f"nowhere {results['nowhere'].problem}"]
    assert not results["nowhere"].samples


def test_every_peer_has_its_driver_and_node_ones_their_pin() -> None:
    missing = [peer.name for peer in PEERS if not (DRIVERS / peer.driver).exists()]
    unpinned = [pin for peer in PEERS for pin in peer.requirements if "==" not in pin]

    assert (missing, unpinned) == ([], [])
    assert '"^' not in (DRIVERS / "package.json").read_text()
