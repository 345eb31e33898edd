"""Runs a Valkey and a PostgreSQL as child processes, for machines that have neither installed.

Not for production: one machine, no replicas, no backups, no upgrade across major versions of PostgreSQL. It guarantees
one instance per data folder, a clean stop and no orphaned servers.
"""

from tideq.embedded.embedded_errors import (
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
from tideq.embedded.environment import ServerTimeouts
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
