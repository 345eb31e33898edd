"""Who is asking, and whether they may. Every route names the roles it is for; one that names none is refused at start.

Keys are read from the store and remembered for a few seconds, so a revoked key is out within that time and asking costs
no round trip.
"""

import asyncio
import contextlib
import time
from collections.abc import Generator, Mapping
from typing import Any

import msgspec
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute

from tideq.api.edge.host_check import check_host_and_origin
from tideq.api.edge.problems import Forbidden, Unauthorized
from tideq.api.operations import PUBLIC, operation_of_handler
from tideq.api.worker_ids import is_made_for
from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.store.access_keys import ANY_CLIENT, AccessKey, AccessKeys, matching

REMEMBER_SECONDS = 3.0
LOOK_SECONDS = 1.0
"""Between two looks at the keys of callers that wait; with the above less than the 5 s after which a key is out."""


class Caller(msgspec.Struct, frozen=True):
    name: str
    role: str
    key_digest: str = ""
    """Empty for whoever came without a key, which only an open service lets in."""
    key_id: str = ""
    client_ids: tuple[str, ...] = ()
    """Clients it may submit as, besides the one of its own name."""

    def may_use_client(self, worker_id: str) -> bool:
        return not self.key_digest or is_made_for(worker_id, self.key_digest)


ANYONE = Caller("anonymous", "admin", client_ids=(ANY_CLIENT,))
"""With authentication off, which is for loopback only, whoever asks may do everything."""


class Authenticator:
    def __init__(
        self, keys: AccessKeys, *, is_open: bool, allowed_hosts: tuple[str, ...] = (), duties: Duties | None = None
    ) -> None:
        self._keys = keys
        self._duties = duties or Duties()
        self._is_open = is_open
        self._allowed_hosts = allowed_hosts
        self._known: dict[str, AccessKey] = {}
        self._read_at = float("-inf")
        self._unread: StoreUnavailable | None = None
        """Why the keys that are known may be old."""
        self._waiting: dict[asyncio.Future[None], Caller] = {}
        self._is_waited_for = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def caller(self, headers: Mapping[str, str]) -> Caller:
        if self._is_open:
            check_host_and_origin(headers.get("host", ""), headers.get("origin", ""), self._allowed_hosts)
            return ANYONE
        scheme, _, key_text = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized("send your key as `Authorization: Bearer tq_…`")
        key = matching(key_text.strip(), await self._keys_now())
        if key is None:
            raise Unauthorized("the key is unknown or revoked")
        return _caller(key)

    @contextlib.contextmanager
    def watching(self, caller: Caller) -> Generator[asyncio.Future[None]]:
        """A future that is done once the caller's key is revoked, or allows something else than it did."""
        shut_out: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if caller.key_digest:
            self._waiting[shut_out] = caller
            self._is_waited_for.set()
            if self._watch is None:
                self._watch = self._duties.start("key watch", self._watch_keys, LOOK_SECONDS)
        try:
            yield shut_out
        finally:
            self._waiting.pop(shut_out, None)
            shut_out.cancel()

    async def close(self) -> None:
        if self._watch is not None:
            await self._duties.stop(self._watch)

    async def has_keys(self) -> bool:
        return bool(await self._keys_now())

    async def _watch_keys(self, duty: Duty) -> None:
        while True:
            with duty.waiting():
                await self._is_waited_for.wait()
            known = {_caller(key) for key in (await self._keys_now()).values() if not key.is_revoked}
            for shut_out, caller in self._waiting.items():
                if caller not in known and not shut_out.done():
                    shut_out.set_result(None)
            if self._unread is not None:
                raise self._unread
            duty.succeeded()
            await asyncio.sleep(LOOK_SECONDS)
            if not self._waiting:
                self._is_waited_for.clear()

    async def _keys_now(self) -> dict[str, AccessKey]:
        """While the store is away nobody can revoke a key: those known last still say who asks, so /metrics answers."""
        if time.monotonic() - self._read_at > REMEMBER_SECONDS:
            try:
                self._known, self._unread = {key.key_id: key for key in await self._keys.all()}, None
            except StoreUnavailable as error:
                self._unread = error
                if not self._known:
                    raise
            self._read_at = time.monotonic()
        return self._known


def _caller(key: AccessKey) -> Caller:
    return Caller(key.name, key.role, key.digest, key.key_id, key.client_ids)


class OptionsRequest(Exception):
    """An OPTIONS request: not refused, and answered here, since Litestar forgets methods that came to a path later."""

    def __init__(self, connection: ASGIConnection[Any, Any, Any, Any]) -> None:
        path = connection.scope["path_template"]
        routes = [
            route for route in connection.app.routes if isinstance(route, HTTPRoute) and route.path_format == path
        ]
        self.methods = sorted({method for route in routes for method in route.methods})


def allowed_roles(handler: BaseRouteHandler) -> frozenset[str]:
    """The roles a route names; an admin may do everything a key can."""
    return operation_of_handler(handler).roles


async def check_role(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A Litestar guard for the whole application.

    A coroutine: Litestar runs a plain function in a thread, which was 40 % of what a single submission cost.
    """
    if getattr(handler, "http_methods", None) == {"OPTIONS"}:
        raise OptionsRequest(connection)
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
    if not caller.may_use_client(worker_id):
        raise Forbidden(f"this key did not register worker {worker_id!r}: register with it")


def require_client(caller: Caller, client_id: str, place: str = "") -> None:
    """`place` is what comes before the field in the body."""
    if client_id != caller.name and client_id not in caller.client_ids and ANY_CLIENT not in caller.client_ids:
        raise Forbidden(
            f"the key {caller.name!r} may not submit as client {client_id!r}: leave client_id out, or let it with "
            f"`tideq keys allow {caller.key_id} --client-id {client_id}`",
            pointer=f"/{place}client_id",
        )
