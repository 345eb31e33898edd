"""The whole service on a group of sentinels, and clients that submit 500 tasks a second and note what they are told."""

import asyncio
import contextlib
import itertools
import shutil
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.api.running import TIDEQ, environ
from tests.chaos.notes import Notebook, read_lines
from tests.chaos.processes import Process
from tests.failover.group import SentinelGroup
from tests.history.servers import Server, finished, own_postgres
from tests.stores import free_port
from tideq.queue_core.background import background_task

QUEUE = "failover"
HANDLERS = Path(__file__).parent.with_name("chaos") / "handlers.py"
BATCH, TICK_SECONDS = 25, 0.05
MAX_WAITING = 40
WAIT_SECONDS = 120


@dataclass
class Told:
    """What clients were told, by the safety they asked for."""

    acknowledged: dict[str, list[str]] = field(default_factory=lambda: {"replica": [], "store": []})
    instants: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """When something was acknowledged, and as how safe."""
    statuses: list[int] = field(default_factory=list[int])

    def count(self, level: str) -> int:
        return len(self.acknowledged[level])


@dataclass
class Scene:
    group: SentinelGroup
    postgres: Server
    settings: dict[str, str]
    folder: Path
    urls: list[str]
    told: Told = field(default_factory=Told)

    @property
    def ledger(self) -> list[dict[str, Any]]:
        return list(read_lines(self.folder / "ledger"))

    def command(self, *arguments: str) -> str:
        done = finished(self.settings, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.asynccontextmanager
    async def load(self) -> AsyncGenerator[None]:
        """Every other batch asks to be safe on a replica. Leaving the block waits for what is under way."""
        async with (
            httpx.AsyncClient(timeout=20) as http,
            asyncio.TaskGroup() as calls,
            background_task(self._submit(http, calls)),
        ):
            yield

    async def _submit(self, http: httpx.AsyncClient, calls: asyncio.TaskGroup) -> None:
        """At a steady pace, whether or not anybody answers; but not without end."""
        waiting = asyncio.Semaphore(MAX_WAITING)
        for number, url in zip(itertools.count(), itertools.cycle(self.urls), strict=False):
            await waiting.acquire()
            level = ("replica", "store")[number // 2 % 2]
            call = calls.create_task(self._hand_in(http, url, level, number))
            call.add_done_callback(lambda _: waiting.release())
            await asyncio.sleep(TICK_SECONDS)

    async def _hand_in(self, http: httpx.AsyncClient, url: str, level: str, number: int) -> None:
        tasks = [
            {"task_type": "work", "parameters": {"mark": f"{number}.{place}"}, "durability": level}
            for place in range(BATCH)
        ]
        with contextlib.suppress(httpx.HTTPError):
            answer = await http.post(f"{url}/api/v1/tasks/batch", json={"tasks": tasks})
            self.told.statuses.append(answer.status_code)
            if answer.status_code == 201:
                self.told.acknowledged[level] += [task["task_id"] for task in answer.json()["tasks"]]
                self.told.instants.append((time.monotonic(), level))


@contextlib.asynccontextmanager
async def open_scene(folder: Path) -> AsyncGenerator[Scene]:
    group = await asyncio.to_thread(SentinelGroup, folder)
    notebook = Notebook(folder / "notes.jsonl")
    with contextlib.ExitStack() as stack:
        stack.callback(group.stop)
        stack.callback(notebook.close)
        postgres = stack.enter_context(own_postgres(folder / "postgres"))
        settings = environ(
            group.url, QUEUE, DATABASE_URL=postgres.database_url, TIDEQ_HEARTBEAT_TIMEOUT_SECONDS="10",
            TIDEQ_ASSIGNMENT_TIMEOUT_SECONDS="5", LEDGER=str(folder / "ledger"),
        )  # fmt: skip
        ports = [free_port(), free_port()]
        scene = Scene(group, postgres, settings, folder, [f"http://127.0.0.1:{port}" for port in ports])
        scene.command("migrate")
        for process in _processes(scene, ports, notebook):
            process.start()
            stack.callback(process.kill)
        await until(lambda: _all_ready(scene.urls))
        yield scene


def _processes(scene: Scene, ports: list[int], notebook: Notebook) -> list[Process]:
    """Two of each that may be many."""
    shutil.copy(HANDLERS, scene.folder / "failover_handlers.py")
    worker = ["worker", "--handlers", "failover_handlers", "--concurrency", "16"]
    commands = {
        **{f"serve-{port}": ["serve", "--port", str(port)] for port in ports},
        **{f"worker-{port}": [*worker, "--url", url] for port, url in zip(ports, scene.urls, strict=True)},
        **{f"replicate-{number}": ["replicate"] for number in range(2)},
        "monitor": ["monitor"],
    }
    return [Process(name, [TIDEQ, *words], scene.settings, scene.folder, notebook) for name, words in commands.items()]


async def _all_ready(urls: list[str]) -> bool:
    async with httpx.AsyncClient() as http:
        with contextlib.suppress(httpx.HTTPError):
            return all([(await http.get(f"{url}/readyz")).status_code == 200 for url in urls])
    return False


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await condition():
            await asyncio.sleep(0.05)
