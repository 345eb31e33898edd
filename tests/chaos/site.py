"""Everything that runs: two stores, nine processes, and a proxy before each of their connections."""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import LiteralString, cast
from urllib.parse import parse_qs, urlsplit

import httpx
import psycopg
from psycopg import sql

from tests.api.proxy import Proxy, proxying
from tests.api.running import TIDEQ, environ
from tests.chaos.notes import Notebook, wall_ms
from tests.chaos.processes import Process
from tests.chaos.shim import Shim
from tests.history.servers import Server
from tests.stores import free_port
from tideq.embedded import PostgresOptions, ValkeyOptions
from tideq.queue_core.background import background_task

QUEUE = "chaos"
SERVICE_ROLE = "service"
"""What the service connects to PostgreSQL as: no superuser, so that its permissions can be withdrawn."""
ASSIGNMENT_MS, HEARTBEAT_MS, RETRY_BASE_MS = 2_000, 4_000, 200
MAX_LOSSES, MAX_DELIVERIES = 4, 10
SETTINGS = {
    "TIDEQ_ASSIGNMENT_TIMEOUT_SECONDS": str(ASSIGNMENT_MS / 1000),
    "TIDEQ_HEARTBEAT_TIMEOUT_SECONDS": str(HEARTBEAT_MS / 1000),
    "TIDEQ_RETRY_BASE_SECONDS": str(RETRY_BASE_MS / 1000),
    "TIDEQ_RETRY_CAP_SECONDS": "1",
    "TIDEQ_RESULT_TTL_SECONDS": "3",
    "TIDEQ_SOFT_DEPTH": "2000",
    "TIDEQ_HIGH_ONLY_DEPTH": "2500",
    "TIDEQ_MAX_DEPTH": "3000",
    "TIDEQ_MAX_WORKER_LOSSES": str(MAX_LOSSES),
    "TIDEQ_MAX_UNSTARTED_CLAIMS": str(MAX_DELIVERIES),
}
"""Everything falls due within a run: lapsed claims, dead workers, retries, and the time finished tasks stay; and a
backlog that could not be drained at its end is refused."""
Staff = dict[str, int]
STAFF: Staff = {"api": 2, "monitor": 2, "replicate": 2, "worker": 3}
CONCURRENCY = 8
LOOK_SECONDS = 0.1
READY_SECONDS = 90


@dataclass
class Site:
    folder: Path
    notebook: Notebook
    shim: Shim
    valkey: Server
    postgres: Server
    staff: Staff
    proxies: dict[str, Proxy] = field(default_factory=dict[str, Proxy])
    services: dict[str, str] = field(default_factory=dict[str, str])
    """Where each service itself listens."""
    processes: dict[str, Process] = field(default_factory=dict[str, Process])
    shims: dict[str, Shim] = field(default_factory=dict[str, Shim])
    """By the names of processes: each has a clock of its own."""
    store_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Troubles of the stores come one at a time: a disk that is full and a server that is killed lose data together,
    as its manual says."""

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    @property
    def urls(self) -> list[str]:
        """Where clients find the service."""
        return [f"http://127.0.0.1:{self.proxies[f'client>{name}'].port}" for name in self.names("api")]

    @property
    def postgres_socket(self) -> str:
        (folder,) = parse_qs(urlsplit(self.postgres.database_url).query)["host"]
        return f"{folder}/.s.PGSQL.5432"

    @contextlib.contextmanager
    def history_settings(self) -> Generator[Callable[[str], None]]:
        """Runs statements as the superuser, past every proxy and whatever was altered before; each at once in force."""
        url = self.postgres.database_url
        own = (
            "default_transaction_read_only=off statement_timeout=0 lock_timeout=0 idle_in_transaction_session_timeout=0"
        )
        options = " ".join(f"-c {each}" for each in own.split())
        with psycopg.connect(url, autocommit=True, options=options) as connection:

            def alter(statement: str) -> None:
                connection.execute(sql.SQL(cast("LiteralString", statement)))
                connection.execute("SELECT pg_reload_conf()")

            yield alter

    def known_to_history(self, task_ids: list[str]) -> list[str]:
        known = sql.SQL("SELECT task_id::text FROM {}.tasks WHERE task_id = ANY (%s::uuid[])")
        with psycopg.connect(self.postgres.database_url) as connection:
            return [row[0] for row in connection.execute(known.format(sql.Identifier(f"tideq_{QUEUE}")), (task_ids,))]

    def names(self, kind: str) -> list[str]:
        return [f"{kind}-{number}" for number in range(1, self.staff[kind] + 1)]

    async def command(self, *words: str, code: Path | None = None) -> None:
        """A command that ends by itself, and well, of this tree or another."""
        process = await asyncio.create_subprocess_exec(
            TIDEQ,
            *words,
            env=_service_environ(self, "api-1", code),
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()

    async def until_ready(self, urls: Sequence[str] = ()) -> None:
        """These services, or all."""
        async with asyncio.timeout(READY_SECONDS), httpx.AsyncClient() as http:
            for url in urls or self.urls:
                while not await _is_ready(http, url):
                    await asyncio.sleep(0.1)

    async def look_after(self) -> None:
        while True:
            for process in self.processes.values():
                process.look_after()
            await asyncio.sleep(LOOK_SECONDS)


async def _is_ready(http: httpx.AsyncClient, url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return (await http.get(f"{url}/readyz")).status_code == 200
    return False


@contextlib.asynccontextmanager
async def open_site(folder: Path, notebook: Notebook, staff: Staff, code: Path | None = None) -> AsyncGenerator[Site]:
    """`code` is another tree that the processes run instead of this one."""
    shim = Shim(folder / "shim")
    valkey = new_valkey(folder / "valkey", shim)
    postgres = Server(folder / "postgres", valkey=None, postgres=PostgresOptions(flags=("-c", "fsync=off")))
    site = Site(folder, notebook, shim, valkey, postgres, staff)
    try:
        valkey.start()
        postgres.start()
        with site.history_settings() as alter:
            alter(f"CREATE ROLE {SERVICE_ROLE} LOGIN")
            alter(f"GRANT ALL ON DATABASE tideq TO {SERVICE_ROLE}")
        async with contextlib.AsyncExitStack() as stack:
            await _open_processes(site, stack, code)
            await stack.enter_async_context(background_task(site.look_after()))
            await site.until_ready()
            yield site
    finally:
        for process in site.processes.values():
            process.kill()
        site.valkey.stop()
        postgres.stop()


def new_valkey(folder: Path, shim: Shim) -> Server:
    """On a port, so that another can replicate it."""
    return Server(folder, valkey=ValkeyOptions(binary=shim.binary, port=free_port()), postgres=None)


async def _open_processes(site: Site, stack: contextlib.AsyncExitStack, code: Path | None) -> None:
    """Proxies first: a process is told their ports."""
    shutil.copy(Path(__file__).with_name("handlers.py"), site.folder / "chaos_handlers.py")
    ports = {name: free_port() for name in site.names("api")}
    site.services = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    for name, port in ports.items():
        await _proxy(site, stack, f"client>{name}", f"http://127.0.0.1:{port}")
    names = [*ports, *site.names("monitor"), *site.names("replicate")]
    for name in names:
        await _proxy(site, stack, f"{name}>valkey", site.valkey.redis_url)
        await _proxy(site, stack, f"{name}>postgres", f"unix://{site.postgres_socket}")
    await site.command("migrate", code=code)
    for name in names:
        kind = name.partition("-")[0]
        options = ["serve", "--port", str(ports[name])] if kind == "api" else [kind]
        _add(site, name, options, _service_environ(site, name, code))
    for number, name in enumerate(site.names("worker")):
        api = list(ports)[number % len(ports)]
        await _proxy(site, stack, f"{name}>{api}", f"http://127.0.0.1:{ports[api]}")
        _add(site, name, _worker_options(site, name, api), _worker_environ(site, code))
    for process in site.processes.values():
        process.start()


async def _proxy(site: Site, stack: contextlib.AsyncExitStack, name: str, url: str) -> None:
    site.proxies[name] = await stack.enter_async_context(proxying(url))


def _add(site: Site, name: str, options: list[str], settings: dict[str, str]) -> None:
    site.shims[name] = Shim(site.folder / f"shim-{name}")
    settings = settings | site.shims[name].environ
    site.processes[name] = Process(name, [TIDEQ, *options], settings, site.folder, site.notebook)


def _service_environ(site: Site, name: str, code: Path | None) -> dict[str, str]:
    redis_url = f"redis://127.0.0.1:{site.proxies[f'{name}>valkey'].port}/0"
    postgres = site.proxies[f"{name}>postgres"].port
    database_url = f"postgresql://{SERVICE_ROLE}@127.0.0.1:{postgres}/tideq?sslmode=disable&gssencmode=disable"
    return environ(redis_url, QUEUE, DATABASE_URL=database_url, **SETTINGS) | _path_to(code)


def _worker_options(site: Site, name: str, api: str) -> list[str]:
    url = f"http://127.0.0.1:{site.proxies[f'{name}>{api}'].port}"
    options = ["--url", url, "--name", name, "--handlers", "chaos_handlers", "--concurrency", str(CONCURRENCY)]
    return ["worker", *options]


def _worker_environ(site: Site, code: Path | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEQ_")}
    booted_ms = wall_ms() - time.monotonic_ns() // 1_000_000
    return inherited | {"LEDGER": str(site.ledger), "BOOTED_MS": str(booted_ms)} | _path_to(code)


def _path_to(code: Path | None) -> dict[str, str]:
    return {"PYTHONPATH": str(code)} if code else {}
