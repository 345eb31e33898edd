"""Who is asking, and whether they may. Every route names the roles it is for; one that names none is refused at start.

Keys are read from the store and remembered for a few seconds, so a revoked key is out within that time and asking costs
no round trip.
"""

import time
from typing import Any

import msgspec
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from tideq.api.problems import Forbidden, Unauthorized
from tideq.queue_core.engine.access_keys import AccessKey, AccessKeys, matching

REMEMBER_SECONDS = 3.0
PUBLIC = "public"


class Caller(msgspec.Struct, frozen=True):
    name: str
    role: str


ANYONE = Caller("anonymous", "admin")
"""With authentication off, which is for loopback only, whoever asks may do everything."""


class Gate:
    def __init__(self, keys: AccessKeys, *, is_open: bool) -> None:
        self._keys = keys
        self._is_open = is_open
        self._known: dict[str, AccessKey] = {}
        self._read_at = float("-inf")

    async def caller(self, authorization: str) -> Caller:
        if self._is_open:
            return ANYONE
        scheme, _, key_text = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized("send your key as `Authorization: Bearer tq_…`")
        key = matching(key_text.strip(), await self._keys_now())
        if key is None:
            raise Unauthorized("the key is unknown or revoked")
        return Caller(key.name, key.role)

    async def has_keys(self) -> bool:
        return bool(await self._keys_now())

    async def _keys_now(self) -> dict[str, AccessKey]:
        if time.monotonic() - self._read_at > REMEMBER_SECONDS:
            self._known = {key.key_id: key for key in await self._keys.all()}
            self._read_at = time.monotonic()
        return self._known


def allowed_roles(handler: BaseRouteHandler) -> frozenset[str]:
    """The roles a route names; an admin may do everything a key can."""
    roles = handler.opt.get("roles")
    if not roles:
        raise TypeError(f"{handler} names no roles: add opt=for_roles(…) to it")
    return frozenset(roles)


def for_roles(*roles: str) -> dict[str, Any]:
    return {"roles": (*roles, "admin")}


def for_everyone() -> dict[str, Any]:
    return {"roles": (PUBLIC,)}


def check_role(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A Litestar guard for the whole application."""
    if getattr(handler, "http_methods", None) == {"OPTIONS"}:
        return
    roles = allowed_roles(handler)
    if PUBLIC not in roles and connection.user.role not in roles:
        raise Forbidden(f"a {connection.user.role} key may not do this; it takes {' or '.join(sorted(roles))}")
