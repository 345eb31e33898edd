"""`Worker`: runs every registered handler on the loop that awaits it."""

from collections.abc import Sequence

from tideq.application.connection import default_client
from tideq.client.config import ClientConfig, client_config
from tideq.client.options import strict
from tideq.workers.runtime import worker_process
from tideq.workers.runtime.registry import registered


@strict
class Worker(worker_process.WorkerProcess):
    """A worker to await: `await Worker(concurrency=4).run()`.

    It runs the handlers registered by `@task` and `tq(…)` before. The service is `url` with `api_key`, else that of
    `tideq.init`, else TIDEQ_URL with TIDEQ_API_KEY. `stop` drains the worker and `run` returns; cancelling `run`
    releases unfinished tasks at once, at no cost.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        concurrency: int = 10,
        capabilities: Sequence[str] = (),
        name: str = "worker",
        version: str = "",
        drain_seconds: float = 30.0,
        health_host: str = "127.0.0.1",
        health_port: int | None = None,
    ) -> None:
        connection = _connection(url, api_key)
        settings = worker_process.WorkerSettings(
            url=connection.url,
            api_key=connection.headers.get("Authorization", "").removeprefix("Bearer ") or None,
            concurrency=concurrency,
            capabilities=tuple(capabilities),
            name=name,
            version=version,
            modules=_imported_by_children(),
            drain_seconds=drain_seconds,
            health_host=health_host,
            health_port=health_port,
        )
        super().__init__(settings, registered)


def _connection(url: str | None, api_key: str | None) -> ClientConfig:
    if url is None and api_key is None:
        return default_client().transport.connection
    return client_config(url, api_key, None, 1, verify=True)


def _imported_by_children() -> tuple[str, ...]:
    """Modules of handlers that run in child processes."""
    return tuple(sorted({handler.function.__module__ for handler in registered if handler.mode == "process"}))
