"""Real servers for people who have installed none: a Valkey and a PostgreSQL run as our children.

Does not promise production: one machine, no replicas, no backups, no upgrade across major versions
of PostgreSQL. Does promise: one instance per data folder, a clean stop, no orphans.
"""

from tideq.embedded.environment import ServerTimeouts
from tideq.embedded.errors import (
    AlreadyRunning,
    DataDirUnusable,
    EmbeddedError,
    NotStarted,
    NoUsableAccount,
    OldServersStillRunning,
    ServerDidNotStart,
    ServerNotInstalled,
    ServerStopped,
    UnsafeRunDirectory,
    WrongDataVersion,
)
from tideq.embedded.instance import RunningInstance, find_running
from tideq.embedded.postgres import PostgresOptions
from tideq.embedded.supervisor import EmbeddedStores
from tideq.embedded.valkey import ValkeyOptions, bundled_valkey

__all__ = [
    "AlreadyRunning",
    "DataDirUnusable",
    "EmbeddedError",
    "EmbeddedStores",
    "NoUsableAccount",
    "NotStarted",
    "OldServersStillRunning",
    "PostgresOptions",
    "RunningInstance",
    "ServerDidNotStart",
    "ServerNotInstalled",
    "ServerStopped",
    "ServerTimeouts",
    "UnsafeRunDirectory",
    "ValkeyOptions",
    "WrongDataVersion",
    "bundled_valkey",
    "find_running",
]
