"""Draws the three journeys of docs/architecture.md: the files that one request or event crosses, from a real run.

A Valkey, a PostgreSQL and the service run in this process, over real HTTP. `sys.setprofile` notes our files, but only
those called in the asyncio context of the journey: what runs beside it (looks, sweeps, reports on duties) has another.
Each journey is made several times after a first one that fills the caches, and a file counts if most of them cross it.
"""

import ast
import asyncio
import contextlib
import socket
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx

from tests.architecture.language import PRODUCT
from tests.architecture.maps import ROOT, drawn
from tideq.api.app import create_app
from tideq.api.http11.connection import HttpConnection
from tideq.api.server import listen, server_for
from tideq.api.service import Service, open_service
from tideq.api.settings import ServiceSettings
from tideq.embedded import EmbeddedStores, PostgresOptions, ValkeyOptions, bundled_valkey
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import replicators_of
from tideq.persistence.replication.batch import Batch
from tideq.persistence.replication.replicator import BatchMeter
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.background import background_task
from tideq.queue_core.polls.ready_lanes import ReadyLanes
from tideq.queue_core.scripts.runner import LUA, Scripts, assemble, parse_header
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.task import NewTask

PAGE = ROOT / "docs" / "architecture.md"
ROUNDS = 3
TASK = {"task_type": "resize", "parameters": {"width": 80}}
SCRIPTS = "queue_core/scripts"
EVENTS = "outbox_append"
"""The include through which every script writes its events."""
JOURNEY = ContextVar("journey", default="")
"""The journey that code running in this context belongs to."""
REQUEST: CodeType = HttpConnection.data_received.__code__
WAKEUP: CodeType = ReadyLanes.cached_signature.__code__
"""Where journeys enter this process: bytes of a request, and the notification that wakes a poll."""

Files = Sequence[str]


class Trace:
    """The files of ours in the order in which the journey enters them first."""

    def __init__(self, journey: str, *entrances: CodeType) -> None:
        self._journey = journey
        self._entrances = entrances
        self._found: dict[str, None] = {}

    @contextlib.contextmanager
    def recording(self) -> Generator[None]:
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    @property
    def files(self) -> Files:
        return tuple(self._found)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        if frame.f_code in self._entrances and JOURNEY.get() != self._journey:
            JOURNEY.set(self._journey)
            self._note_callers(frame)
        if JOURNEY.get() == self._journey:
            self._note(frame)

    def _note_callers(self, frame: FrameType) -> None:
        callers = [frame]
        while (caller := callers[-1].f_back) is not None:
            callers.append(caller)
        for each in reversed(callers):
            self._note(each)

    def _note(self, frame: FrameType) -> None:
        if (file := our_file(frame.f_code.co_filename)) is not None:
            self._found.setdefault(file)
        if frame.f_code is Scripts.call.__code__:
            self._found.update(dict.fromkeys(lua_files(frame.f_locals["name"])))


@cache
def our_file(name: str) -> str | None:
    """The path from the root, past the links in `tideq/`; None for libraries, tests and generated code."""
    path = Path(name).resolve()
    place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path()
    return str(place) if place.parts and place.parts[0] in PRODUCT else None


def lua_files(script: str) -> Files:
    includes = (f"include/{name}" for name in assemble(script).header.uses)
    return tuple(f"{SCRIPTS}/{name}.lua" for name in (script, *includes))


def lua_files_of_events(script: str) -> Files:
    """Those of the script's includes that write its events."""
    headers = {name: parse_header(name, _include(name)) for name in assemble(script).header.uses}
    writing = [name for name, header in headers.items() if name == EVENTS or EVENTS in header.uses]
    return tuple(f"{SCRIPTS}/include/{name}.lua" for name in writing)


def _include(name: str) -> str:
    return (LUA / "include" / f"{name}.lua").read_text()


class Scene:
    """The service over HTTP, and a worker."""

    def __init__(self, service: Service, http: httpx.AsyncClient) -> None:
        self._service = service
        self._http = http

    async def submission(self) -> Trace:
        trace = Trace("submission", REQUEST)
        with trace.recording():
            await self._post("/api/v1/tasks", TASK)
        return trace

    async def poll(self) -> Trace:
        """Waits until the poll sleeps before the task comes that wakes it."""
        worker = await self._post("/internal/workers/register", {})
        await self._claim_the_rest(worker["worker_id"])
        trace = Trace("poll", REQUEST, WAKEUP)
        with trace.recording():
            polling = asyncio.create_task(self._poll(worker["worker_id"], wait_seconds=20))
            while not self._service.wakeups.sleeping_count:
                await asyncio.sleep(0.001)
            await self._service.engine.queue.submit(NewTask("resize"))
            assert len(await polling) == 1
        await self._http.delete(f"/internal/workers/{worker['worker_id']}")
        return trace

    async def event(self, written: asyncio.Event) -> Trace:
        """One submission's event; `written` is set once the store has the acknowledgement."""
        trace = Trace("event")
        written.clear()
        with trace.recording():
            await self._service.engine.queue.submit(NewTask("resize"))
            await written.wait()
        return trace

    @contextlib.asynccontextmanager
    async def replicating(self) -> AsyncGenerator[asyncio.Event]:
        written, meter = asyncio.Event(), BatchMeter(self._service.duties.counters)

        def note(batch: Batch) -> None:
            meter.note(batch)
            written.set()

        settings = self._service.settings
        linger_ms = settings.history.linger_ms
        async with replicators_of(self._service.store, settings.redis_url, note, linger_ms) as replicators:
            JOURNEY.set("event")
            async with background_task(replicators.run_for_ever()):
                JOURNEY.set("")
                yield written

    async def _claim_the_rest(self, worker_id: str) -> None:
        while await self._poll(worker_id):
            pass

    async def _poll(self, worker_id: str, **fields: Any) -> Any:
        answer = await self._post(f"/internal/workers/{worker_id}/poll", {"available_capacity": 1, **fields})
        return answer["tasks"]

    async def _post(self, path: str, body: Any) -> Any:
        answer = await self._http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()


async def trace_journeys(redis_url: str, database_url: str) -> dict[str, Files]:
    """On a queue of its own. By the name of the journey."""
    async with _scene(redis_url, database_url) as scene:
        submission = await _most(scene.submission)
        poll = await _most(scene.poll)
        async with scene.replicating() as written:
            event = await _most(lambda: scene.event(written))
    return {
        "submission": submission,
        "poll": poll,
        "event": (*lua_files_of_events("submit"), *event),
    }


async def _most(travel: Callable[[], Awaitable[Trace]]) -> Files:
    await travel()
    found = [(await travel()).files for _ in range(ROUNDS)]
    counts = Counter(file for files in found for file in files)
    in_order = dict.fromkeys(file for files in sorted(found, key=len) for file in files)
    return tuple(file for file in in_order if counts[file] > ROUNDS / 2)


@contextlib.asynccontextmanager
async def _scene(redis_url: str, database_url: str) -> AsyncGenerator[Scene]:
    queue_name = uuid.uuid4().hex[:12]
    async with Database(database_url, queue_name) as database:
        await migrate(database)
    settings = ServiceSettings(
        redis_url=redis_url,
        queue=QueueSettings(queue_name=queue_name),
        history=HistorySettings(database_url=database_url),
    )
    async with open_service(settings) as service:
        await service.wakeups.wait_until_subscribed()
        key = await service.access_keys.create("journeys", "admin", 0)
        with contextlib.closing(listen("127.0.0.1", 0)) as listener:
            async with _served(service, listener) as url:
                headers = {"Authorization": f"Bearer {key}"}
                async with httpx.AsyncClient(base_url=url, headers=headers, timeout=40) as http:
                    yield Scene(service, http)


@contextlib.asynccontextmanager
async def _served(service: Service, listener: socket.socket) -> AsyncGenerator[str]:
    server = server_for(create_app(service), service.settings)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


def table(files: Files) -> str:
    lua_count = sum(file.endswith(".lua") for file in files)
    head = [f"{len(files) - lua_count} Python files, {lua_count} Lua files.", "", "| file | purpose |", "| --- | --- |"]
    return "\n".join([*head, *(f"| [{file}](../{file}) | {purpose(file)} |" for file in files)])


def purpose(file: str) -> str:
    """The first sentence of a module's docstring, or the first line of a script without its name."""
    text = (ROOT / file).read_text()
    if file.endswith(".lua"):
        return text.splitlines()[0].removeprefix("-- ").partition(": ")[2].replace("|", "\\|")
    whole = " ".join((ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].split())
    return (whole.split(". ")[0].removesuffix(".")).replace("|", "\\|")


def main() -> None:
    valkey, postgres = ValkeyOptions(binary=bundled_valkey()), PostgresOptions(flags=("-c", "fsync=off"))
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedStores(Path(folder), valkey=valkey, postgres=postgres) as stores,
    ):
        journeys = asyncio.run(trace_journeys(stores.redis_url, stores.database_url))
    for name, files in journeys.items():
        PAGE.write_text(drawn(PAGE.read_text(), f"journey-{name}", table(files)))


if __name__ == "__main__":
    main()
