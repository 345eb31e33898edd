"""Running the service: uvicorn inside our own loop, because the order of stopping is ours to decide.

On SIGTERM or SIGINT waiting polls are answered empty, nothing new is claimed, what is under way finishes, and the
process ends; a second signal ends it at once.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import uvicorn

from tideq.api.app import create_app
from tideq.api.service import Service, open_service
from tideq.api.settings import ServiceSettings

GRACE_SECONDS = 5
KEEP_ALIVE_SECONDS = 75


class PortTaken(RuntimeError):
    """Somebody else listens where the service should."""


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are handled by whoever runs the service."""
        yield


async def serve(
    settings: ServiceSettings,
    on_ready: Callable[[str], None],
    beside: Callable[[Service], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Until a signal; `on_ready` is told the address once the service takes work, `beside` runs as long as it does."""
    with contextlib.closing(_listen(settings)) as listener:
        async with open_service(settings) as service:
            server = Server(_config(create_app(service)))

            def stop() -> None:
                server.force_exit = server.should_exit
                service.close()
                server.should_exit = True

            with _on_signals(stop):
                helping = asyncio.create_task(beside(service)) if beside else None
                on_ready(_address(listener))
                await server.serve(sockets=[listener])
                if helping is not None:
                    helping.cancel()
                    await asyncio.gather(helping, return_exceptions=True)


def _listen(settings: ServiceSettings) -> socket.socket:
    """Bound before anything starts: a port that is taken is known at once, and callers wait instead of failing."""
    try:
        return socket.create_server((settings.host, settings.port), family=_family(settings.host), backlog=2048)
    except OSError as error:
        raise PortTaken(f"cannot listen on {settings.host} port {settings.port}: {error.strerror}") from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@contextlib.contextmanager
def _on_signals(stop: Callable[[], None]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        server_header=False,
    )


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
