"""`tideq keys`: who may talk to the service."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from tideq.cli.running import environ_with, say, settings_from
from tideq.queue_core.engine.access_keys import AccessKey, AccessKeys
from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.store import StoreUrlError, connect
from tideq.queue_core.errors import InvalidRequest, Unavailable

T = TypeVar("T")


def create(name: str, *, role: Literal["producer", "worker", "viewer", "admin"]) -> None:
    """Make a key and show it. Only its digest is kept, so this is the only time.

    Parameters
    ----------
    name
        Whose key it is; limits and audits go by it.
    role
        producer submits, worker takes and finishes, viewer looks, admin does everything.
    """
    say(_with_keys(lambda keys: keys.create(name, role, time.time_ns() // 1_000_000)))


def show() -> None:
    """List every key: id, name, role, and whether it is revoked."""
    for key in _with_keys(AccessKeys.all):
        say(_line(key))


def revoke(key_id: str) -> None:
    """Shut a key out.

    Parameters
    ----------
    key_id
        The part between the underscores: tq_<id>_….
    """
    say(_line(_with_keys(lambda keys: keys.revoke(key_id))))


def _line(key: AccessKey) -> str:
    return f"{key.key_id}  {key.role:<9} {key.name}{'  (revoked)' if key.is_revoked else ''}"


def _with_keys(act: Callable[[AccessKeys], Awaitable[T]]) -> T:
    settings = settings_from(environ_with())
    if not settings.redis_url:
        sys.exit("error: set REDIS_URL to the service's store")

    async def run() -> T:
        client = connect(settings.redis_url)
        try:
            return await act(AccessKeys(client, Keys(settings.queue.queue_name, settings.queue.partition)))
        finally:
            await client.aclose()

    try:
        return asyncio.run(run())
    except (InvalidRequest, StoreUrlError, Unavailable) as error:
        sys.exit(f"error: {error}")
