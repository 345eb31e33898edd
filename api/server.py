"""Runs the service: uvicorn in our own event loop, because we decide the order of stopping.

On SIGTERM or SIGINT waiting polls are answered with no tasks, nothing new is claimed, requests under way finish, and
the process ends; a second signal ends it at once. Why uvicorn, uvloop and httptools: docs/http-server.md.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import uvicorn

from tideq.api.app import create_app
from tideq.api.edge.problems import protocol_refusal
from tideq.api.http11.connection import HttpConnection, protocol_with
from tideq.api.service import Service, open_service
from tideq.api.settings import ServiceSettings
from tideq.queue_core.background import cancel_and_wait, run_all
from tideq.queue_core.duties import DutiesEnded
from tideq.queue_core.telemetry.spans import Tracing

GRACE_SECONDS = 5
CLOSE_WAIT_SECONDS, MAX_CLOSE_WAIT_SECONDS = 1.0, 2.0
"""How long a recently used connection stays open so that its client receives `Connection: close`, and how long all of
them may take; new connections are accepted meanwhile."""
POLL_SECONDS = 0.02
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2_048
MAX_UNSENT_BYTES = 131_072
"""Bytes of a response that the kernel buffers before the client reads on."""


class PortTaken(RuntimeError):
    """Another process listens on the address."""


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Does nothing: `serve_app` handles signals."""
        yield

    async def announce_close(self) -> None:
        """Makes every response from now on end its connection, and waits for recently used connections to get one.

        A request that is in flight while its connection is closed is reset, and its client cannot find out whether it
        was processed.
        """
        closing = (b"connection", b"close")
        # uvicorn makes `default_headers` anew from `encoded_headers` every second.
        self.config.encoded_headers.append(closing)
        self.server_state.default_headers = [*self.server_state.default_headers, closing]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_CLOSE_WAIT_SECONDS):
                while any(_may_send_a_request(each) for each in self.server_state.connections):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)


def _may_send_a_request(connection: object) -> bool:
    """uvicorn's own connections do not say when they were used."""
    return not isinstance(connection, HttpConnection) or connection.was_active_within(CLOSE_WAIT_SECONDS)


async def serve(
    settings: ServiceSettings,
    on_ready: Callable[[str], None],
    background: Callable[[Service], Coroutine[Any, Any, None]] | None = None,
    listener: socket.socket | None = None,
    before_stop: Callable[[], Awaitable[None]] | None = None,
    tracing: Tracing | None = None,
) -> None:
    """Serves until a signal or until `background` ends, which raises `DutiesEnded`.

    `on_ready` is called with the address once the service accepts requests; `before_stop` is awaited while it still
    does.
    """
    with contextlib.closing(listener or listen(settings.host, settings.port)) as listening:
        async with open_service(settings, tracing) as service:

            async def close() -> None:
                if before_stop is not None:
                    await before_stop()
                service.close()

            running = asyncio.create_task(_run_background(service, background))
            await serve_app(create_app(service), listening, on_ready, close, settings, running)
            if running.done():
                if not running.cancelled():
                    running.result()
                raise DutiesEnded("the background duties of this process have ended")
            await cancel_and_wait(running)


async def _run_background(service: Service, background: Callable[[Service], Coroutine[Any, Any, None]] | None) -> None:
    """Runs as long as the service: when this ends, the service ends."""
    works = [service.check_keys_when_reachable(), service.duties.wait_for_unexpected_end()]
    await run_all(*works, *([background(service)] if background else []))


def server_for(app: Any, settings: ServiceSettings | None = None) -> Server:
    """A uvicorn server without signal handling."""
    return Server(_config(app, settings or ServiceSettings()))


async def serve_app(
    app: Any,
    listener: socket.socket,
    on_ready: Callable[[str], None],
    close: Callable[[], Awaitable[None]],
    settings: ServiceSettings | None = None,
    background: asyncio.Future[None] | None = None,
) -> None:
    """Serves any ASGI application until a signal or until `background` ends."""
    server = server_for(app, settings)
    stopping: list[asyncio.Task[None]] = []

    async def stop_in_order() -> None:
        announcing = asyncio.ensure_future(server.announce_close())
        try:
            await close()
            await announcing
        finally:
            server.should_exit = True

    def stop() -> None:
        if stopping:
            server.should_exit = server.force_exit = True
        else:
            stopping.append(asyncio.create_task(stop_in_order()))

    if background is not None:
        background.add_done_callback(lambda _: stopping or stop())
    with _on_signals(stop):
        on_ready(address_of(listener))
        await server.serve(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Binds before anything starts: a taken port is an error at once, and early clients wait instead of failing.

    Raises `PortTaken`.
    """
    try:
        listener = socket.create_server((host, port), family=_family(host), backlog=BACKLOG)
    except OSError as error:
        raise PortTaken(f"cannot listen on {host} port {port}: {error.strerror}") from error
    # Accepted connections inherit it; asyncio does not set it on them, and responses then took 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Inherited too. A send buffer grows to megabytes, and bytes in it look as if the client had read them.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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


def _config(app: Any, settings: ServiceSettings) -> uvicorn.Config:
    protocol = protocol_with(protocol_refusal, settings.slow_client_ms / 1000, KEEP_ALIVE_SECONDS)
    return uvicorn.Config(
        app,
        http="httptools" if settings.http_protocol == "uvicorn" else protocol,
        ws="none",
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
    )
