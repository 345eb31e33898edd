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


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are handled by whoever runs the service."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


async def serve(
    settings: ServiceSettings,
    on_ready: Callable[[str], None],
    beside: Callable[[Service], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Until a signal; `on_ready` is told the address once the service takes work, `beside` runs as long as it does."""
    async with open_service(settings) as service:
        server = Server(_config(create_app(service), settings))

        def stop() -> None:
            server.force_exit = server.should_exit
            service.close()
            server.should_exit = True

        with _on_signals(stop):
            serving = asyncio.create_task(server.serve())
            helping = asyncio.create_task(beside(service)) if beside else None
            serving.add_done_callback(lambda _: server.listening.set())
            await server.listening.wait()
            if not serving.done():
                on_ready(_address(server))
            await serving
            if helping is not None:
                helping.cancel()
                await asyncio.gather(helping, return_exceptions=True)


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


def _config(app: Any, settings: ServiceSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        server_header=False,
    )


def _address(server: Server) -> str:
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    return f"http://{host}:{port}"
