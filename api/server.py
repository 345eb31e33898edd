"""Running the service: uvicorn inside our own loop, because the order of stopping is ours to decide.

On SIGTERM or SIGINT waiting polls are answered empty, nothing new is claimed, what is under way finishes, and the
process ends; a second signal ends it at once. Why uvicorn, and what uvloop and httptools bring: docs/http-server.md.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import uvicorn

from tideq.api.app import create_app
from tideq.api.http11.connection import HttpConnection, protocol_with
from tideq.api.http11.limits import READ_TIMEOUT_SECONDS
from tideq.api.service import Service, open_service
from tideq.api.settings import ServiceSettings
from tideq.queue_core.background import cancel_and_wait, run_all
from tideq.queue_core.duties import DutiesEnded
from tideq.queue_core.telemetry.spans import Tracing

GRACE_SECONDS = 5
LEAVE_SECONDS, MAX_LEAVE_SECONDS = 1.0, 2.0
"""How long a connection that was in use may stay for its caller to learn that it ends; new ones may come all along."""
LOOK_SECONDS = 0.02
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2_048
MAX_UNSENT_BYTES = 131_072
"""That the kernel takes of an answer before its reader makes room."""


class PortTaken(RuntimeError):
    """Somebody else listens where the service should."""


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are handled by whoever runs the service."""
        yield

    async def take_leave(self) -> None:
        """Every answer from now on ends its connection; those that were in use just now get time for one more request.

        A request that is on its way to a connection that is closed meanwhile is reset, and its caller cannot know
        whether it was heard.
        """
        farewell = (b"connection", b"close")
        # The one is made anew of the other every second.
        self.config.encoded_headers.append(farewell)
        self.server_state.default_headers = [*self.server_state.default_headers, farewell]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_LEAVE_SECONDS):
                # Time alone changes it: there is no event to wait for.
                while any(each.may_ask_within(LEAVE_SECONDS) for each in self._connections):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_SECONDS)

    @property
    def _connections(self) -> list[HttpConnection]:
        return list(self.server_state.connections)  # pyright: ignore[reportReturnType] - all are made by `patient`


async def serve(
    settings: ServiceSettings,
    on_ready: Callable[[str], None],
    beside: Callable[[Service], Coroutine[Any, Any, None]] | None = None,
    listener: socket.socket | None = None,
    before_stop: Callable[[], Awaitable[None]] | None = None,
    tracing: Tracing | None = None,
) -> None:
    """Until a signal; `on_ready` is told the address once the service takes work, `beside` runs as long as it does.

    `before_stop` is what has to happen while the service still does all it is asked to.
    """
    with contextlib.closing(listener or listen(settings.host, settings.port)) as listening:
        async with open_service(settings, tracing) as service:

            async def close() -> None:
                if before_stop is not None:
                    await before_stop()
                service.close()

            helping = asyncio.create_task(_help(service, beside))
            patience_seconds = settings.slow_client_ms / 1000
            await serve_app(create_app(service), listening, on_ready, close, patience_seconds, helping)
            if helping.done():
                if not helping.cancelled():
                    helping.result()
                raise DutiesEnded("what a process does beside answering has ended for good")
            await cancel_and_wait(helping)


async def _help(service: Service, beside: Callable[[Service], Coroutine[Any, Any, None]] | None) -> None:
    """For as long as the service runs: where this ends, so does the service."""
    works = [service.check_keys_late(), service.duties.one_ended()]
    await run_all(*works, *([beside(service)] if beside else []))


def server_for(app: Any, patience_seconds: float = READ_TIMEOUT_SECONDS) -> Server:
    """Signals are not its business."""
    return Server(_config(app, patience_seconds))


async def serve_app(
    app: Any,
    listener: socket.socket,
    on_ready: Callable[[str], None],
    close: Callable[[], Awaitable[None]],
    patience_seconds: float = READ_TIMEOUT_SECONDS,
    helping: asyncio.Future[None] | None = None,
) -> None:
    """Any ASGI application as the service is served, until a signal or the end of what helps it."""
    server = server_for(app, patience_seconds)
    stopping: list[asyncio.Task[None]] = []

    async def stop_in_order() -> None:
        leaving = asyncio.ensure_future(server.take_leave())
        try:
            await close()
            await leaving
        finally:
            server.should_exit = True

    def stop() -> None:
        if stopping:
            server.should_exit = server.force_exit = True
        else:
            stopping.append(asyncio.create_task(stop_in_order()))

    if helping is not None:
        helping.add_done_callback(lambda _: stopping or stop())
    with _on_signals(stop):
        on_ready(address_of(listener))
        await server.serve(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Bound before anything starts: a port that is taken is known at once, and callers wait instead of failing."""
    try:
        listener = socket.create_server((host, port), family=_family(host), backlog=BACKLOG)
    except OSError as error:
        raise PortTaken(f"cannot listen on {host} port {port}: {error.strerror}") from error
    # Connections inherit it. asyncio does not set it on those of such a listener, and answers then took 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # As well: a send buffer grows to megabytes, and what it has swallowed looks as if it had been read.
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


def _config(app: Any, patience_seconds: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol_with(patience_seconds, KEEP_ALIVE_SECONDS),
        ws="none",
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
    )
