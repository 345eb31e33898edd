"""`tideq up`: everything on this machine, with its data in one folder."""

import sys
from pathlib import Path

from tideq.cli.running import environ_with, run_service, say, settings_from
from tideq.embedded import EmbeddedError, EmbeddedStores

HELLO = """
TideQ answers at {address}. Try:

  curl -s {address}/api/v1/tasks -d '{{"task_type": "hello", "parameters": {{"name": "tide"}}}}'
  curl -s {address}/api/v1/queue/stats

Ctrl-C stops it; the data stays in {data_dir}.
"""


def up(*, data_dir: Path = Path("data"), port: int | None = None) -> None:
    """Run a real Valkey, a real PostgreSQL and the service, until Ctrl-C or SIGTERM.

    REDIS_URL and DATABASE_URL take precedence: a store given by its URL is not started. On loopback no access key is
    asked for, unless TIDEQ_AUTH=keys.

    Parameters
    ----------
    data_dir
        Where the stores keep their data.
    port
        Where to listen on 127.0.0.1; also TIDEQ_PORT.
    """
    environ = {"TIDEQ_AUTH": "off", **environ_with(TIDEQ_PORT=port)}
    settings_from(environ)
    try:
        _run(data_dir, environ)
    except EmbeddedError as error:
        sys.exit(f"error: {error}")


def _run(data_dir: Path, environ: dict[str, str]) -> None:
    with EmbeddedStores(
        data_dir,
        redis_url=environ.get("REDIS_URL"),
        database_url=environ.get("DATABASE_URL"),
        on_progress=say,
    ) as stores:
        settings = settings_from({**environ, "REDIS_URL": stores.redis_url})
        run_service(settings, lambda address: say(HELLO.format(address=address, data_dir=data_dir)))
