"""The service on a queue of its own: inside the test's loop for most, as a process for what needs sockets."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.api.bench import Bench
from tests.api.replication import Replication
from tests.api.running import SWITCHES, Running, environ, serving
from tests.api.seats import Seats
from tests.api.wire import Caller, Desk, Wire, wired
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.api.service import Service, open_service
from tideq.api.settings import Auth, read_service_settings
from tideq.persistence.database import Database
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.clock import StoreClock


@pytest.fixture(autouse=True)
def _needs_our_protocol(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("own_protocol") and SWITCHES.get("TIDEQ_HTTP_PROTOCOL") == "uvicorn":
        pytest.skip("names a bound or a behaviour of api/http11, which TIDEQ_HTTP_PROTOCOL=uvicorn does without")


@pytest.fixture
def auth() -> Auth:
    """Override with "keys" to test who may do what."""
    return "off"


@pytest.fixture
def queue_name() -> str:
    return uuid.uuid4().hex[:12]


@pytest.fixture
def has_history() -> bool:
    """Override to test with a PostgreSQL; whether anything replicates to it is up to the test."""
    return False


@pytest.fixture
async def history_settings(request: pytest.FixtureRequest, has_history: bool, queue_name: str) -> HistorySettings:
    if not has_history:
        return HistorySettings()
    url = request.getfixturevalue("database_url")
    async with Database(url, queue_name) as database:
        await migrate(database)
    return HistorySettings(database_url=url, searchable={"resize": ("width", "label", "nested")})


@pytest.fixture
async def service(
    store: StoreUnderTest, settings: QueueSettings, auth: Auth, queue_name: str, history_settings: HistorySettings
) -> AsyncIterator[Service]:
    queue = msgspec.structs.replace(settings, queue_name=queue_name)
    switched = read_service_settings(SWITCHES)
    chosen = msgspec.structs.replace(switched, auth=auth, redis_url=store.url, queue=queue, history=history_settings)
    async with open_service(chosen) as service:
        await service.wakeups.wait_until_subscribed()
        yield service


@pytest.fixture
async def replication(service: Service) -> AsyncIterator[Replication]:
    """To be started and stopped; begun where a test asks for `replicated`."""
    replication = Replication(service)
    yield replication
    await replication.stop()


@pytest.fixture
async def replicated(replication: Replication, monkeypatch: pytest.MonkeyPatch) -> Replication:
    """A replicator at work from the beginning, and a service that waits for it however busy the machine is."""
    for limit in (
        "api.routes.history.CATCH_UP_SECONDS",
        "api.routes.dlq.CATCH_UP_SECONDS",
        "persistence.read.expired_tasks.SOON_SECONDS",
    ):
        monkeypatch.setattr(f"tideq.{limit}", 10)
    await replication.start()
    return replication


@pytest.fixture
async def kit(service: Service) -> AsyncIterator[Kit]:
    """The service's own engine, to look behind the API; afterwards its invariants must still hold."""
    queue = service.settings.queue
    keys = Keys(queue.queue_name, queue.partition)
    kit = Kit(service.client, queue, keys, service.engine, StoreClock(service.client, keys))
    yield kit
    await kit.assert_sound()


@pytest.fixture(scope="session")
def seats() -> Seats:
    return Seats()


@pytest.fixture
async def http(service: Service, seats: Seats) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(seats.app_of(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://tideq") as client:
        yield client


@pytest.fixture
def bench(http: httpx.AsyncClient, kit: Kit) -> Bench:
    return Bench(http)


@pytest.fixture
def server_settings(store: StoreUnderTest, queue_name: str) -> dict[str, str]:
    return environ(store.url, queue_name)


@pytest.fixture
def server(server_settings: dict[str, str], tmp_path: Path) -> Iterator[Running]:
    """A `tideq serve` of its own, open to all on loopback."""
    with serving(server_settings, tmp_path) as running:
        yield running


@pytest.fixture
def server_url(server: Running) -> str:
    return server.url


@pytest.fixture
async def remote(server_url: str) -> AsyncIterator[Bench]:
    """The calls, over a real connection to the real process."""
    async with httpx.AsyncClient(base_url=server_url, timeout=40) as client:
        yield Bench(client)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def wire(desk: Desk) -> AsyncIterator[Wire]:
    async with wired(desk) as wire:
        yield wire


@pytest.fixture
async def caller(wire: Wire) -> Caller:
    return await wire.caller()
