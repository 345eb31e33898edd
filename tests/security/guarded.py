"""Both stores with the users that ship in deploy/, a password for each, and nobody else let in."""

import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString, NamedTuple, cast

import psycopg
import redis
from psycopg.conninfo import make_conninfo

from tests.api.running import TIDEQ, environ, serving
from tests.stores import free_port
from tests.telemetry.processes import SOON, process
from tests.telemetry.sink import Sink, collecting
from tideq.embedded import EmbeddedStores, PostgresOptions, ValkeyOptions, bundled_valkey

DEPLOY = Path(__file__).parents[2] / "deploy"
ACL = DEPLOY / "valkey.acl"
ROLES = DEPLOY / "postgres-roles.sql"
USERS = ("api", "monitor", "replicator", "reader")
ADMIN = "user default on nopass ~* &* +@all"
"""For the test itself, and for the supervisor that starts the store."""


class Guarded(NamedTuple):
    folder: Path
    """Where both keep their data."""
    port: int
    database_url: str
    """As a superuser."""

    def redis_url(self, user: str) -> str:
        return f"redis://tideq-{user}:{password(user)}@127.0.0.1:{self.port}/0"

    def store(self, user: str = "") -> Any:
        if not user:
            return redis.Redis(port=self.port)
        return redis.Redis(port=self.port, username=f"tideq-{user}", password=password(user))

    def database(self, user: str = "") -> str:
        return make_conninfo(self.database_url, user=f"tideq_{user}") if user else self.database_url

    def connect(self, user: str = "") -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.database(user), autocommit=True)

    def apply_roles(self) -> None:
        with self.connect() as connection:
            connection.execute(cast("LiteralString", ROLES.read_text()))

    def settings(self, user: str, **more: str) -> dict[str, str]:
        own = {"DATABASE_URL": self.database(user), "TIDEQ_AUTH": "keys", **more}
        return environ(self.redis_url(user), "default", **own)

    def refusals(self) -> list[str]:
        """What a user of ours tried and was not allowed to do."""
        log: Any = self.store().acl_log()
        return [f"{each['username']}: {each['object']}, {each['context']}, {each['reason']}" for each in log]


class Programs(NamedTuple):
    """The service, its monitor and its replicator as processes, each as its own user and watched by a collector."""

    url: str
    folder: Path
    pids: dict[str, int]
    sink: Sink

    def logs(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.folder.glob("*.log"))}


@contextmanager
def programs_on(stores: Guarded, folder: Path) -> Generator[Programs]:
    with collecting() as sink:
        told = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, "OTEL_TRACES_SAMPLER": "always_on", **SOON}
        settings = {user: stores.settings(user, **told) for user in ("api", "monitor", "replicator")}
        with (
            serving(settings["api"], folder) as running,
            process(settings["monitor"], folder / "monitor.log", TIDEQ, "monitor", ready="probing disabled") as one,
            process(settings["replicator"], folder / "replicate.log", TIDEQ, "replicate", ready="replicating") as other,
        ):
            pids = {"api": running.process.pid, "monitor": one.pid, "replicator": other.pid}
            yield Programs(running.url, folder, pids, sink)


def bearing(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def run(settings: dict[str, str], *words: str) -> str:
    """What a command that ends by itself says, however long it takes on a busy machine."""
    ended = subprocess.run([TIDEQ, *words], env=settings, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def password(user: str) -> str:
    return f"secret-of-{user}"


def acl_lines() -> dict[str, str]:
    """By user, as shipped."""
    return {line.split()[1]: line for line in ACL.read_text().splitlines()}


def commands_of(line: str) -> set[str]:
    return set(re.findall(r"\+(\S+)", line))


@contextmanager
def guarded_stores(folder: Path) -> Generator[Guarded]:
    acl, port = folder / "users.acl", free_port()
    lines = acl_lines()
    given = [f"{lines[f'tideq-{user}']} >{password(user)}" for user in USERS]
    acl.write_text("\n".join([ADMIN, *given]) + "\n")
    options = ValkeyOptions(binary=bundled_valkey(), port=port, flags=("--aclfile", str(acl)))
    postgres = PostgresOptions(flags=("-c", "fsync=off"))
    with EmbeddedStores(folder / "data", valkey=options, postgres=postgres) as stores:
        yield Guarded(folder / "data", port, stores.database_url)
