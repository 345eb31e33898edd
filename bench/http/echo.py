"""The reference: a Litestar route that answers `{}` to a POST, run by the same server as the service."""

import sys

from litestar import Litestar, Response, post

from tideq.api.server import listen, serve_app
from tideq.queue_core.background import run


@post("/echo", status_code=200)
async def echo() -> Response[bytes]:
    return Response(b"{}", media_type="application/json")


def free_port() -> int:
    """A free port for servers that bind their own socket."""
    with listen("127.0.0.1", 0) as probe:
        return probe.getsockname()[1]


def print_address(address: str) -> None:
    sys.stdout.write(f"TideQ answers at {address}\n")
    sys.stdout.flush()


async def close() -> None:
    """This application has nothing to close."""


def echo_app() -> Litestar:
    return Litestar([echo], openapi_config=None, logging_config=None)


if __name__ == "__main__":
    run(serve_app(echo_app(), listen("127.0.0.1", 0), print_address, close))
