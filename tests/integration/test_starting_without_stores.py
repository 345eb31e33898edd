"""Whoever starts while the stores are away waits for them, and begins by itself: no process is started twice."""

import asyncio
import time
from pathlib import Path

import httpx

from tests.api.running import environ
from tests.history.scale import PATIENCE_SECONDS
from tests.history.servers import own_postgres, own_valkey
from tests.history.situations import rows, until
from tests.integration.starting import Process, started
from tideq.persistence.database import Database
from tideq.persistence.schema.migrations import migrate

QUEUE = "without_stores"
STORE_AWAY, HISTORY_AWAY = "valkey.sock", "PGSQL"
"""How the drivers name what they do not reach."""
WAITS_FOR = {
    "serve": (STORE_AWAY,),
    "monitor": (STORE_AWAY, HISTORY_AWAY),
    "replicate": (STORE_AWAY, HISTORY_AWAY),
    "worker": ('"registered":{"ok":false',),
    "up": (STORE_AWAY,),
}
CLOSED = "closed, waiting for the store"


OUTAGE_SECONDS, BACK_SECONDS = 12.0, 10.0
"""Long enough for every pause to have grown as long as it ever gets: what ten minutes do, `test_back_soon` adds up."""


async def test_processes_that_start_without_their_stores_wait_for_them_and_go_on_by_themselves(tmp_path: Path) -> None:
    with own_valkey(tmp_path / "valkey") as valkey, own_postgres(tmp_path / "postgres") as postgres:
        database_url = postgres.database_url
        async with Database(database_url, QUEUE) as database:
            await migrate(database)
        valkey_url = valkey.redis_url
        valkey.stop()
        postgres.stop()

        with started(environ(valkey_url, QUEUE, DATABASE_URL=database_url), tmp_path) as processes:
            async with httpx.AsyncClient() as http:
                await asyncio.gather(*(_is_waiting(http, each) for each in processes.values()))
                valkey.start()
                postgres.start()
                await asyncio.gather(*(_is_ready(http, each) for each in processes.values()))
                doubled = await _worked_off(http, processes["serve"], "double", {"number": 21})
                greeted = await _worked_off(http, processes["up"], "hello", {"name": "tide"})
                first_outage = {name: each.logged() for name, each in processes.items()}
                valkey.stop()
                await asyncio.gather(*(_is_closed(http, processes[name]) for name in ("serve", "monitor")))
                await asyncio.sleep(OUTAGE_SECONDS)
                valkey.start()
                began = time.monotonic()
                await asyncio.gather(*(_is_ready(http, each) for each in processes.values()))
                took_seconds = time.monotonic() - began
            await _is_in_history(database_url, QUEUE, doubled["task_id"])
            await _is_in_history(database_url, f"{QUEUE}_up", greeted["task_id"])

            assert all(each.running.poll() is None for each in processes.values())

    assert took_seconds < BACK_SECONDS
    assert (doubled["result"], greeted["result"]) == (42, {"greeting": "Hello, tide!"})
    for name, lines in first_outage.items():
        assert sum(line["event"] == CLOSED for line in lines) == int(name != "worker")
        said = [(line["event"], line.get("duty"), line.get("error")) for line in lines if _is_warning(line)]
        assert len(said) == len(set(said)), said
        assert processes[name].log.read_text().count("error connecting") <= 1


def _is_warning(line: dict[str, object]) -> bool:
    return line["level"] in ("warning", "error")


async def _is_waiting(http: httpx.AsyncClient, process: Process) -> None:
    """Alive, not ready, and says what for."""

    async def is_told() -> bool:
        alive, ready = await process.look(http, "/livez"), await process.look(http, "/readyz")
        if alive is None or ready is None:
            return False
        assert alive.status_code == 200, alive.text
        assert ready.status_code == 503, ready.text
        return all(reason in ready.text for reason in WAITS_FOR[process.name])

    await until(is_told)


async def _is_closed(http: httpx.AsyncClient, process: Process) -> None:
    async def is_closed() -> bool:
        ready = await process.look(http, "/readyz")
        return ready is not None and ready.status_code == 503

    await until(is_closed)


async def _is_ready(http: httpx.AsyncClient, process: Process) -> None:
    async def is_ready() -> bool:
        ready = await process.look(http, "/readyz")
        return ready is not None and ready.status_code == 200

    await until(is_ready)


async def _worked_off(
    http: httpx.AsyncClient, process: Process, task_type: str, parameters: dict[str, object]
) -> dict[str, object]:
    submitted = await http.post(f"{process.url}/api/v1/tasks", json={"task_type": task_type, "parameters": parameters})
    answer = await http.get(f"{process.url}/api/v1/tasks/{submitted.json()['task_id']}/wait", timeout=PATIENCE_SECONDS)
    return answer.json()


async def _is_in_history(database_url: str, queue_name: str, task_id: object) -> None:
    async with Database(database_url, queue_name) as database:

        async def is_kept() -> bool:
            return bool(await rows(database, "SELECT FROM tasks WHERE task_id = %s AND state = 'completed'", task_id))

        await until(is_kept)
