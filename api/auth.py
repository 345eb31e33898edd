"""Who is asking, and whether they may. Every route names the roles it is for; one that names none is refused at start.

Keys are read from the store and remembered for a few seconds, so a revoked key is out within that time and asking costs
no round trip.
"""

import time
from collections.abc import Mapping
from typing import Any

import msgspec
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute

from tideq.api.calls import PUBLIC, declared
from tideq.api.neighbours import check_neighbour
from tideq.api.problems import Forbidden, Unauthorized
from tideq.api.worker_ids import is_made_for
from tideq.queue_core.engine.access_keys import AccessKey, AccessKeys, matching
from tideq.queue_core.errors import StoreUnavailable

REMEMBER_SECONDS = 3.0


class Caller(msgspec.Struct, frozen=True):
    name: str
    role: str
    key_digest: str = ""
    """Empty for whoever came without a key, which only an open service lets in."""

    def may_speak_for(self, worker_id: str) -> bool:
        return not self.key_digest or is_made_for(worker_id, self.key_digest)


ANYONE = Caller("anonymous", "admin")
"""With authentication off, which is for loopback only, whoever asks may do everything."""


class Gate:
    def __init__(self, keys: AccessKeys, *, is_open: bool, allowed_hosts: tuple[str, ...] = ()) -> None:
        self._keys = keys
        self._is_open = is_open
        self._allowed_hosts = allowed_hosts
        self._known: dict[str, AccessKey] = {}
        self._read_at = float("-inf")

    async def caller(self, headers: Mapping[str, str]) -> Caller:
        if self._is_open:
            check_neighbour(headers.get("host", ""), headers.get("origin", ""), self._allowed_hosts)
            return ANYONE
        scheme, _, key_text = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized("send your key as `Authorization: Bearer tq_…`")
        key = matching(key_text.strip(), await self._keys_now())
        if key is None:
            raise Unauthorized("the key is unknown or revoked")
        return Caller(key.name, key.role, key.digest)

    async def has_keys(self) -> bool:
        return bool(await self._keys_now())

    async def _keys_now(self) -> dict[str, AccessKey]:
        """While the store is away nobody can revoke a key: those known last still say who asks, so /metrics answers."""
        if time.monotonic() - self._read_at > REMEMBER_SECONDS:
            try:
                self._known = {key.key_id: key for key in await self._keys.all()}
            except StoreUnavailable:
                if not self._known:
                    raise
            self._read_at = time.monotonic()
        return self._known


class MethodsAsked(Exception):
    """An OPTIONS request: not refused, and answered here, since Litestar forgets methods that came to a path later."""

    def __init__(self, connection: ASGIConnection[Any, Any, Any, Any]) -> None:
        path = connection.scope["path_template"]
        routes = [
            route for route in connection.app.routes if isinstance(route, HTTPRoute) and route.path_format == path
        ]
        self.methods = sorted({method for route in routes for method in route.methods})


def allowed_roles(handler: BaseRouteHandler) -> frozenset[str]:
    """The roles a route names; an admin may do everything a key can."""
    return declared(handler).roles


async def check_role(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A Litestar guard for the whole application.

    A coroutine: Litestar runs a plain function in a thread, which was 40 % of what a single submission cost.
    """
    if getattr(handler, "http_methods", None) == {"OPTIONS"}:
        raise MethodsAsked(connection)
    roles = allowed_roles(handler)
    if PUBLIC not in roles:
        require_role(connection.user, roles)


async def check_worker(connection: ASGIConnection[Any, Any, Any, Any], _handler: BaseRouteHandler) -> None:
    """A guard for all calls in a worker's name: the key must be the one that registered it."""
    worker_id = connection.path_params.get("worker_id")
    if worker_id is not None:
        require_own_worker(connection.user, worker_id)


def require_role(caller: Caller, roles: frozenset[str]) -> None:
    if caller.role not in roles:
        raise Forbidden(f"a {caller.role} key may not do this; it takes {' or '.join(sorted(roles))}")


def require_own_worker(caller: Caller, worker_id: str) -> None:
    if not caller.may_speak_for(worker_id):
        raise Forbidden(f"this key did not register worker {worker_id!r}: register with it")
