"""Authentication by key and authorisation by role. A route that declares no role is refused at start.

Keys are read from the store and cached for a few seconds: a check costs no round trip, and a revoked key stops working
within that time.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import secrets
import time
from collections.abc import Generator, Mapping

import msgspec
from litestar.handlers import BaseRouteHandler

from tideq.api.edge.host_check import check_host_and_origin
from tideq.api.edge.problems import Forbidden, Unauthorized
from tideq.api.operations import operation_of_handler
from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.store.access_keys import ANY_CLIENT, AccessKey, AccessKeys, matching

CACHE_SECONDS = 3.0
POLL_SECONDS = 1.0
"""Between two reads of the keys while callers wait. With the cache time it must stay below the 5 s after which a
revoked key is promised to stop working."""
MAX_NAME_LENGTH = 40
MARK_LENGTH = 10
"""Fifty bits; a whole worker id stays within the 64 characters of a name."""


class Caller(msgspec.Struct, frozen=True):
    name: str
    role: str
    key_digest: str = ""
    """Empty without a key, which only a service with authentication off accepts."""
    key_id: str = ""
    client_ids: tuple[str, ...] = ()
    """Clients this key may submit as, besides the one of its own name."""

    def may_use_worker(self, worker_id: str) -> bool:
        return not self.key_digest or is_made_for(worker_id, self.key_digest)


ANONYMOUS = Caller("anonymous", "admin", client_ids=(ANY_CLIENT,))
"""The caller of every request while authentication is off, which is for loopback only."""


class Authenticator:
    def __init__(
        self,
        keys: AccessKeys,
        *,
        auth_disabled: bool,
        allowed_hosts: tuple[str, ...] = (),
        duties: Duties | None = None,
    ) -> None:
        self._keys = keys
        self._duties = duties or Duties()
        self._auth_disabled = auth_disabled
        self._allowed_hosts = allowed_hosts
        self._keys_by_id: dict[str, AccessKey] = {}
        self._read_at = float("-inf")
        self._read_error: StoreUnavailable | None = None
        """Set while the cached keys could not be read again."""
        self._watched: dict[asyncio.Future[None], Caller] = {}
        self._has_watched = asyncio.Event()
        self._key_poll: asyncio.Task[None] | None = None

    async def caller(self, headers: Mapping[str, str]) -> Caller:
        if self._auth_disabled:
            check_host_and_origin(headers.get("host", ""), headers.get("origin", ""), self._allowed_hosts)
            return ANONYMOUS
        scheme, _, key_text = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized("send your key as `Authorization: Bearer tq_…`")
        key = matching(key_text.strip(), await self._read_keys())
        if key is None:
            raise Unauthorized("the key is unknown or revoked")
        return _caller(key)

    @contextlib.contextmanager
    def watch_key(self, caller: Caller) -> Generator[asyncio.Future[None]]:
        """A future that is done once the caller's key is revoked or its permissions change."""
        revoked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if caller.key_digest:
            self._watched[revoked] = caller
            self._has_watched.set()
            if self._key_poll is None:
                self._key_poll = self._duties.start("key watch", self._poll_keys, POLL_SECONDS)
        try:
            yield revoked
        finally:
            self._watched.pop(revoked, None)
            revoked.cancel()

    async def close(self) -> None:
        if self._key_poll is not None:
            await self._duties.stop(self._key_poll)

    async def has_keys(self) -> bool:
        return bool(await self._read_keys())

    async def _poll_keys(self, duty: Duty) -> None:
        while True:
            with duty.waiting():
                await self._has_watched.wait()
            valid = {_caller(key) for key in (await self._read_keys()).values() if not key.is_revoked}
            for revoked, caller in self._watched.items():
                if caller not in valid and not revoked.done():
                    revoked.set_result(None)
            if self._read_error is not None:
                raise self._read_error
            duty.succeeded()
            await asyncio.sleep(POLL_SECONDS)
            if not self._watched:
                self._has_watched.clear()

    async def _read_keys(self) -> dict[str, AccessKey]:
        """The cached keys, read again when old. While the store is unreachable no key can be revoked, so the cache
        stays in use and /metrics answers. Raises `StoreUnavailable` if nothing is cached.
        """
        if time.monotonic() - self._read_at > CACHE_SECONDS:
            try:
                self._keys_by_id, self._read_error = {key.key_id: key for key in await self._keys.all()}, None
            except StoreUnavailable as error:
                self._read_error = error
                if not self._keys_by_id:
                    raise
            self._read_at = time.monotonic()
        return self._keys_by_id


def _caller(key: AccessKey) -> Caller:
    return Caller(key.name, key.role, key.digest, key.key_id, key.client_ids)


def allowed_roles(handler: BaseRouteHandler) -> frozenset[str]:
    return operation_of_handler(handler).roles


def require_role(caller: Caller, roles: frozenset[str]) -> None:
    if caller.role not in roles:
        raise Forbidden(f"a {caller.role} key may not do this; use a key with the role {' or '.join(sorted(roles))}")


def require_own_worker(caller: Caller, worker_id: str) -> None:
    if not caller.may_use_worker(worker_id):
        raise Forbidden(f"this key did not register worker {worker_id!r}; register a worker with this key")


def require_client(caller: Caller, client_id: str, prefix: str = "") -> None:
    """`prefix` is the path to the field in the body."""
    if client_id != caller.name and client_id not in caller.client_ids and ANY_CLIENT not in caller.client_ids:
        raise Forbidden(
            f"the key {caller.name!r} may not submit as client {client_id!r}; leave client_id out, or allow it with "
            f"`tideq keys allow {caller.key_id} --client-id {client_id}`",
            pointer=f"/{prefix}client_id",
        )


def make_worker_id(name: str, key_digest: str) -> str:
    """A worker id bound to the key that registers it: no other key may use it.

    An id is `<name>-<random><mark>`; the mark is a MAC of everything before it under the key's digest. So the check
    needs no store call, and neither another key's id nor an invented one passes. A key that replaces another must
    register its workers again. Persisted only as long as the worker lives: the format may be changed freely.
    """
    unmarked = f"{name[:MAX_NAME_LENGTH]}-{secrets.token_hex(6)}"
    return unmarked + _mark(unmarked, key_digest)


def is_made_for(worker_id: str, key_digest: str) -> bool:
    unmarked, mark = worker_id[:-MARK_LENGTH], worker_id[-MARK_LENGTH:]
    return hmac.compare_digest(_mark(unmarked, key_digest).encode(), mark.encode())


def _mark(unmarked: str, key_digest: str) -> str:
    mac = hmac.digest(key_digest.encode(), b"worker " + unmarked.encode(), hashlib.sha256)
    return base64.b32encode(mac).decode().lower()[:MARK_LENGTH]
