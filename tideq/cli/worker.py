"""`tideq worker`: run an application's handlers."""

import importlib
import os
import sys
from urllib.parse import urlsplit

from tideq.cli.contexts import Target
from tideq.cli.exit_codes import USAGE, stop, stop_with
from tideq.cli.logging import log_to_stderr
from tideq.cli.output import print_line
from tideq.cli.reloading import run_with_reload
from tideq.cli.session import Address
from tideq.client.config import DEFAULT_URL
from tideq.queue_core.settings import SettingsError, Telemetry
from tideq.telemetry.setup import tracing_from
from tideq.workers.runtime.arguments import HandlerError
from tideq.workers.runtime.health import HealthPortTaken
from tideq.workers.runtime.poller import RegistrationRefused
from tideq.workers.runtime.registry import has_started, registered
from tideq.workers.runtime.worker_process import WorkerSettings, run_until_signal

MAX_CONCURRENCY = 10_000
LOCAL = Address()


def worker(
    *,
    handlers: str,
    concurrency: int = 10,
    capabilities: str = "",
    name: str = "worker",
    drain_seconds: float = 30.0,
    health_host: str = "127.0.0.1",
    health_port: int | None = None,
    reload: bool = False,
    service: Address = LOCAL,
) -> None:
    """Claim tasks and run their handlers, until SIGTERM or Ctrl-C; a second signal does not wait for running tasks.

    Parameters
    ----------
    handlers
        Modules to import, comma-separated: this worker serves their @task functions and tq(…) workers.
    concurrency
        Tasks that run at once, counted over all handlers without a concurrency of their own.
    capabilities
        The worker's capabilities, comma-separated: gpu,large.
    name
        The name shown in lists; the worker's id begins with it.
    drain_seconds
        How long running tasks may take to finish after the first signal.
    health_host
        The address on which the health page listens, and which the worker registers for probes.
    health_port
        The port of the health page; 0 takes any free port. Without this option there is no page.
    reload
        Restart when a source file of the application changes. For development.
    """
    log_to_stderr()
    if reload:
        sys.exit(run_with_reload())
    target = _target(service)
    url = target.url or DEFAULT_URL
    _check(url, concurrency)
    modules = _words(handlers)
    has_started.set()
    _import(modules)
    if not len(registered):
        stop(f"no handler in {handlers!r}: decorate a function with @task, or give tq(…) a worker", USAGE)
    settings = WorkerSettings(
        url=url,
        api_key=target.api_key,
        concurrency=concurrency,
        capabilities=_words(capabilities),
        name=name,
        modules=modules,
        drain_seconds=drain_seconds,
        health_host=health_host,
        health_port=health_port,
    )
    print_line(f"working for {url}: {', '.join(sorted(handler.task_type for handler in registered))}")
    try:
        with tracing_from(os.environ, Telemetry().traces_per_second, "tideq-worker") as tracing:
            if tracing is not None:
                tracing.serve_handlers()
            sys.exit(run_until_signal(settings, registered))
    except (SettingsError, HandlerError, RegistrationRefused, HealthPortTaken) as error:
        stop_with(error)


def _target(service: Address) -> Target:
    """The key needs the role worker."""
    try:
        return service.target()
    except ValueError as error:
        stop(str(error), USAGE)


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _check(url: str, concurrency: int) -> None:
    """A worker retries an unreachable service without end, so a wrong URL must be refused at the start."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        stop(f"--url {url} is not a URL of a service; use one like http://127.0.0.1:8080", USAGE)
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        stop(f"--concurrency {concurrency} is not between 1 and {MAX_CONCURRENCY}", USAGE)


def _import(modules: tuple[str, ...]) -> None:
    """Searches the current folder first, as `python -m` does."""
    sys.path.insert(0, os.getcwd())
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            stop(f"module {error.name!r} was not found; give --handlers names as `import` takes them", USAGE)
        except (TypeError, ValueError) as error:
            if not module.startswith("."):
                raise
            stop(f"{module!r} is a relative name; --handlers takes absolute module names ({error})", USAGE)
