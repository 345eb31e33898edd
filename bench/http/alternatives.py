"""The service and the echo on other ASGI servers: `python -m bench.http.alternatives SERVER echo|service`.

The service's own server is `uvicorn`, exactly as `api/server.py` sets it up. Servers that are not installed are left
out of the comparison: none is a dependency.
"""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import uvicorn

from bench.http.echo import close, echo_app, say
from tideq.api.app import create_app
from tideq.api.server import listen, serve_app
from tideq.api.service import open_service
from tideq.cli.service_runner import environ_with, settings_from
from tideq.queue_core.background import run

HOST = "127.0.0.1"
Serve = Callable[[Any], Awaitable[None]]


async def on_uvicorn(app: Any) -> None:
    await serve_app(app, listen(HOST, 0), say, close)


async def on_plain_uvicorn(app: Any) -> None:
    """Nothing but what uvicorn itself depends on: h11, in pure Python."""
    listener = listen(HOST, 0)
    config = uvicorn.Config(app, http="h11", log_config=None, access_log=False, lifespan="off", proxy_headers=False)
    say(f"http://{HOST}:{listener.getsockname()[1]}")
    await uvicorn.Server(config).serve(sockets=[listener])


async def on_hypercorn(app: Any) -> None:
    config, port, stopped = import_module("hypercorn.config").Config(), free_port(), asyncio.Event()
    config.bind, config.graceful_timeout = [f"{HOST}:{port}"], 1
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    say_later(port)
    await import_module("hypercorn.asyncio").serve(app, config, shutdown_trigger=stopped.wait)


async def on_granian(app: Any) -> None:
    port, interfaces = free_port(), import_module("granian.constants").Interfaces
    server = import_module("granian.server.embed").Server(
        app, address=HOST, port=port, interface=interfaces.ASGINL, log_enabled=False, websockets=False
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    say_later(port)
    await server.serve()


def free_port() -> int:
    """For servers that bind for themselves."""
    with listen(HOST, 0) as probe:
        return probe.getsockname()[1]


def say_later(port: int) -> None:
    """They tell nobody when they listen; a second is plenty."""
    asyncio.get_running_loop().call_later(1, say, f"http://{HOST}:{port}")


SERVERS: dict[str, Serve] = {
    "uvicorn": on_uvicorn,
    "uvicorn-h11": on_plain_uvicorn,
    "hypercorn": on_hypercorn,
    "granian": on_granian,
}


def installed() -> list[str]:
    return [name for name in SERVERS if find_spec(name.partition("-")[0])]


async def main(serve: Serve, app: str) -> None:
    if app == "echo":
        await serve(echo_app())
        return
    async with open_service(settings_from(environ_with())) as service:
        await serve(create_app(service))


if __name__ == "__main__":
    name, app = sys.argv[1:]
    runner: Callable[[Any], object] = asyncio.run if name == "uvicorn-h11" else run
    runner(main(SERVERS[name], app))
