"""A type that always fails costs the types beside it next to nothing, in one worker and in separate ones.

Real worker processes are timed, beside the healthy type alone on the same machine a moment before. What workers do with
the broken types meanwhile is counted, which no busy machine changes.
"""

import json
import shutil
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from tests.api.bench import Bench
from tests.api.running import Running, environ, serving
from tests.stores import StoreUnderTest
from tests.workers.waiting import all_ended, submitted, until
from tests.workers.workshop import Workshop, workshop
from tideq.api.schemas.blocked_types import OPEN
from tideq.queue_core.background import background_task
from tideq.workers.runtime.failures import Retry
from tideq.workers.runtime.handlers import Handler, Handlers
from tideq.workers.runtime.service_api import ServiceApi, ServiceReply
from tideq.workers.runtime.worker_process import WorkerProcess, WorkerSettings

SLOTS = 10
PROCESS_SLOTS = 5
"""For tasks that take 10 ms: the slots bound the rate, and not this machine."""
ROUNDS = 3
"""A machine that is busy for a moment is nobody's circuit: the best one counts."""
ENDED = b"ended"
"""As `sound_and_broken.py` notes it."""
TOGETHER, APART = (("sound", "broken"),), (("broken",), ("sound",))
HEALTHY = "-healthy"
BATCH = 1_000
LOG_SECONDS = 20
MIN_SHARE = 0.9
"""Of its throughput alone. With slots shared and tasks alike, that of the attempts."""


@pytest.fixture(scope="module")
def service(
    running_stores: Callable[[str], StoreUnderTest], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Circuits as they are by default."""
    settings = environ(running_stores("valkey").url, uuid.uuid4().hex[:12])
    with serving(settings, tmp_path_factory.mktemp("broken")) as background_task:
        yield background_task


class Load(NamedTuple):
    """Types of its own: what one test leaves behind is none of the next one's."""

    healthy_type: str
    healthy_task_count: int
    broken_types: list[str]


@pytest.fixture(params=[(1, 500), (50, 5_000)], ids=["one broken", "fifty broken"])
async def load(request: pytest.FixtureRequest, bench: Bench) -> Load:
    return await loaded(bench, *request.param)


async def loaded(bench: Bench, broken_type_count: int, healthy_task_count: int) -> Load:
    """As many broken tasks as healthy ones, and all of them before."""
    name, per_type = uuid.uuid4().hex[:8], healthy_task_count // max(broken_type_count, 1)
    load = Load(name + HEALTHY, healthy_task_count, [f"{name}-{number}" for number in range(broken_type_count)])
    tasks = [{"task_type": each, "max_retries": 0} for _ in range(per_type) for each in load.broken_types]
    tasks += [{"task_type": load.healthy_type}] * healthy_task_count
    for start in range(0, len(tasks), BATCH):
        await submitted(bench, tasks[start : start + BATCH])
    return load


async def worked_off(
    shop: Workshop, url: str, load: Load, processes: Sequence[Sequence[str]], patch: pytest.MonkeyPatch
) -> float:
    """All healthy tasks, by these processes with these handlers each; how many a second.

    From the first call on of the process that has them: what it learns of broken types takes its time.
    """
    paths = [shop.folder / f"{load.healthy_type}-{number}" for number in range(len(processes))]
    patch.setenv("TASK_TYPES", json.dumps({"sound": [load.healthy_type], "broken": load.broken_types}))
    for number, kinds in enumerate(processes):
        patch.setenv("CALLS", str(paths[number]))
        shop.hire(url, "--concurrency", str(PROCESS_SLOTS), handlers=",".join(kinds))
    await until(
        lambda: sum(each.read_bytes().count(ENDED) for each in paths if each.exists()) == load.healthy_task_count
    )
    for hand in shop.hands:
        hand.kill()
    noted = [_noted(path) for path in paths]
    with_healthy = next(each for each in noted if any(event == ENDED for event, _ in each))
    ends = [at for event, at in with_healthy if event == ENDED]
    return len(ends) / (max(ends) - min(at for _, at in with_healthy))


def _noted(path: Path) -> list[tuple[bytes, float]]:
    return [(event, float(at)) for event, at in map(bytes.split, path.read_bytes().splitlines())]


@pytest.fixture
def shop(tmp_path: Path) -> Generator[Workshop]:
    with workshop(tmp_path / "shop") as shop:
        shutil.copy(Path(__file__).with_name("sound_and_broken.py"), shop.folder)
        for kind in ("sound", "broken"):
            (shop.folder / f"{kind}.py").write_text(f"import sound_and_broken as s\ns.add({kind!r}, s.{kind})\n")
        yield shop


@pytest.mark.parametrize("processes", [TOGETHER, APART], ids=["one worker", "two workers"])
@pytest.mark.parametrize(("broken_type_count", "task_count"), [(1, 1_500), (50, 8_000)], ids=["one", "fifty"])
async def test_in_real_workers_the_healthy_type_has_nine_tenths_of_its_throughput_alone(
    service: Running,
    bench: Bench,
    shop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
    processes: Sequence[Sequence[str]],
    broken_type_count: int,
    task_count: int,
) -> None:
    ratios = list[float]()
    for _ in range(ROUNDS):
        alone_load = await loaded(bench, 0, 1_500)
        alone = await worked_off(shop, service.url, alone_load, [("sound",)], monkeypatch)
        load = await loaded(bench, broken_type_count, task_count)
        beside = await worked_off(shop, service.url, load, processes, monkeypatch)
        ratios.append(beside / alone)
        if ratios[-1] >= MIN_SHARE:
            break

    assert max(ratios) >= MIN_SHARE, ratios


class Crowd:
    """Workers in this process, and how often they called each handler."""

    def __init__(self, url: str) -> None:
        self.calls: Counter[str] = Counter()
        self._url = url

    def worker(self, name: str, *task_types: str) -> WorkerProcess:
        handlers = Handlers()
        for task_type in task_types:
            handlers.add(Handler(task_type, self._handler(task_type)))
        return WorkerProcess(WorkerSettings(url=self._url, concurrency=SLOTS, name=name), handlers)

    def _handler(self, task_type: str) -> Callable[[], Awaitable[None]]:
        async def call() -> None:
            self.calls[task_type] += 1
            if not task_type.endswith(HEALTHY):
                raise RuntimeError("always")

        return call


async def test_in_one_worker_the_healthy_type_has_nine_tenths_of_the_attempts(service: Running, load: Load) -> None:
    crowd = Crowd(service.url)

    async with background_task(crowd.worker("both", load.healthy_type, *load.broken_types).run()):
        await until(lambda: crowd.calls[load.healthy_type] == load.healthy_task_count)

    assert crowd.calls[load.healthy_type] / crowd.calls.total() >= MIN_SHARE, crowd.calls
    assert min(crowd.calls[each] for each in load.broken_types) >= 5


async def test_the_worker_says_in_its_own_log_what_it_is_held_back_from_and_until_when(
    service: Running, bench: Bench
) -> None:
    broken = uuid.uuid4().hex[:8]
    await submitted(bench, [{"task_type": broken, "max_retries": 0}] * 9)

    with capture_logs() as logs:
        async with background_task(Crowd(service.url).worker("broken", broken).run()):
            await until(lambda: _told(logs, "circuit opened"), LOG_SECONDS)

    (told,) = _told(logs, "circuit opened")
    assert (told["log_level"], told["task_type"], told["reason"]) == ("warning", broken, OPEN)
    assert told["until"]


async def test_what_a_handler_asks_for_is_not_held_against_its_worker(service: Running, bench: Bench) -> None:
    """Nine failures and nothing else: five of them would have opened its circuit."""
    calls, busy = 0, uuid.uuid4().hex[:8]

    async def ask_for_a_retry() -> None:
        nonlocal calls
        calls += 1
        raise Retry("not yet", code="X")

    handlers = Handlers()
    handlers.add(Handler(busy, ask_for_a_retry))
    worker = WorkerProcess(WorkerSettings(url=service.url, concurrency=1, name="polite"), handlers)
    tasks = await submitted(bench, [{"task_type": busy, "max_retries": 0}] * 9)

    with capture_logs() as logs:
        async with background_task(worker.run()):
            await until(lambda: calls == len(tasks) or _told(logs, "circuit opened"))
            ends = await all_ended(bench, tasks) if calls == len(tasks) else []
            fleet = (await bench.call("GET", "/api/v1/workers?limit=500"))["workers"]

    assert [end["error"]["code"] for end in ends] == ["X"] * 9
    assert [each["blocked_types"] for each in fleet if each["name"] == "polite"] == [[]]


def _told(logs: Sequence[Any], event: str) -> list[Any]:
    return [line for line in logs if line["event"] == event]


async def test_in_workers_of_their_own_the_broken_types_leave_the_service_in_peace(
    service: Running, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd, requests = Crowd(service.url), Counter[str]()
    monkeypatch.setattr(ServiceApi, "poll", _counted(ServiceApi.poll, requests))
    monkeypatch.setattr(ServiceApi, "sync", _counted(ServiceApi.sync, requests))

    async with background_task(crowd.worker("broken", *load.broken_types).run()):
        await until(lambda: all(crowd.calls[each] >= 5 for each in load.broken_types))
        async with background_task(crowd.worker("sound", load.healthy_type).run()):
            await until(lambda: crowd.calls[load.healthy_type] == load.healthy_task_count)

    assert crowd.calls[load.healthy_type] / crowd.calls.total() >= MIN_SHARE, crowd.calls
    assert requests["broken"] <= load.healthy_task_count * (1 - MIN_SHARE), requests


def _counted(
    call: Callable[..., Awaitable[ServiceReply]], requests: Counter[str]
) -> Callable[..., Awaitable[ServiceReply]]:
    """By the name of the worker."""

    async def counted(self: ServiceApi, worker_id: str, *arguments: Any, **parts: Any) -> ServiceReply:
        requests[worker_id.rpartition("-")[0]] += 1
        return await call(self, worker_id, *arguments, **parts)

    return counted
