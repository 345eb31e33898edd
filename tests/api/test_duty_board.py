"""A process that does not do its duties is named by every API process, whichever it is, also once it is gone."""

import httpx
import msgspec

from tests.api.bench import until
from tideq.api.service import Service
from tideq.queue_core.background import background_task
from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.store.clock import server_now_ms
from tideq.queue_core.store.duty_board import FORGOTTEN_MS, SILENT_MS, DutyBoard, DutyReport


async def _fail(_: Duty) -> None:
    raise RuntimeError("as planned")


async def _said(service: Service, process: str, ago_ms: int, *kept: str) -> None:
    """What a process said some time ago."""
    keys = service.engine.keys
    now_ms = await server_now_ms(service.client, keys)
    await service.client.hset(keys.key("duties"), process, msgspec.json.encode(DutyReport(now_ms - ago_ms, kept)))


async def test_a_stale_duty_of_another_process_is_named_and_leaves_this_one_ready(
    service: Service, http: httpx.AsyncClient
) -> None:
    duties, monitor = Duties(), DutyBoard(service.client, service.engine.keys, "monitor-1:7")

    async def is_stale() -> bool:
        return bool(duties.stale)

    async with background_task(duties.add("prune", _fail)):
        await until(is_stale)
        await monitor.post(duties)
        answer = await http.get("/readyz")
    await monitor.post(duties)

    assert (answer.status_code, answer.json()["stale_duties"]) == (200, [])
    ((duty, process),) = [(each["duty"], each["process"]) for each in answer.json()["stale_elsewhere"]]
    assert (duty, process) == ("prune", "monitor-1:7")
    assert (await http.get("/readyz")).json()["stale_elsewhere"] == []


async def test_a_duty_that_nobody_does_any_more_is_named_for_an_hour(service: Service) -> None:
    """A process that took the place of another is no reason to name that."""
    await _said(service, "monitor-1:7", SILENT_MS + 1_000, "sweep", "journal")
    await _said(service, "monitor-2:7", 1_000, "journal")
    await _said(service, "replicator:7", FORGOTTEN_MS + 1_000, "replication")

    (found,) = await service.duty_board.elsewhere()

    assert (found.duty, found.process) == ("sweep", "monitor-1:7")
    assert SILENT_MS / 1_000 < found.seconds < SILENT_MS / 1_000 + 30
    kept = set(await service.client.hkeys(service.engine.keys.key("duties")))
    assert {b"monitor-1:7", b"monitor-2:7"} <= kept
    assert b"replicator:7" not in kept


async def test_what_cannot_be_read_on_the_board_is_let_be(service: Service, http: httpx.AsyncClient) -> None:
    await service.client.hset(service.engine.keys.key("duties"), "later:1", "7")

    answer = await http.get("/readyz")

    assert (answer.status_code, answer.json()["stale_elsewhere"]) == (200, [])


async def test_every_service_says_how_its_duties_do(service: Service) -> None:
    async def has_said() -> bool:
        told = await service.client.hvals(service.engine.keys.key("duties"))
        return any("ready scan" in msgspec.json.decode(each, type=DutyReport).kept for each in told)

    await until(has_said)
