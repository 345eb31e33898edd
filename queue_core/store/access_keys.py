"""Access keys: who may talk to the service. Kept hashed in the store, shown once.

A key reads `tq_<id>_<secret>`. Its secret is 32 random bytes, so a plain SHA-256 is enough: there is nothing to guess.
Whether a key is unknown, wrong or revoked takes the same work to find out.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog

from tideq.queue_core.errors import InvalidRequest
from tideq.queue_core.log_once import LogOnce
from tideq.queue_core.names import NAME
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store.connect import store_errors

ANY_CLIENT = "*"
ROLES = ("producer", "worker", "viewer", "admin")
KEY = re.compile(r"tq_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
TELL_AGAIN_SECONDS = 300.0
NOBODY = hashlib.sha256(secrets.token_bytes(32)).hexdigest()

log = structlog.get_logger(__name__)


class AccessKey(msgspec.Struct, frozen=True):
    """What is kept of a key. Persisted as JSON: add fields with defaults, never rename one."""

    key_id: str
    name: str
    role: str
    digest: str
    created_ms: int
    is_revoked: bool = False
    client_ids: tuple[str, ...] = ()
    """Clients it may submit as, besides the one of its own name; `*` is any."""


class AccessKeys:
    def __init__(self, client: Any, keys: Keys) -> None:
        self._client = client
        self._hash = keys.key("access_keys")
        self._told = LogOnce(TELL_AGAIN_SECONDS)

    async def create(self, name: str, role: str, now_ms: int, client_ids: Sequence[str] = ()) -> str:
        """The new key, whole: the only time anyone sees it."""
        _check(name, role, client_ids)
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        await self._store(AccessKey(key_id, name, role, _digest(secret), now_ms, client_ids=tuple(client_ids)))
        return f"tq_{key_id}_{secret}"

    async def adopt(
        self, key_text: str, name: str, role: str, now_ms: int, client_ids: Sequence[str] = ()
    ) -> AccessKey:
        """Let a key in that was made elsewhere. A known one stays as it is, revoked or not, but for its clients."""
        _check(name, role, client_ids)
        match = KEY.fullmatch(key_text)
        if match is None:
            raise InvalidRequest("key", f"the key of {name!r} is not tq_<12 hex digits>_<43 letters, digits, - or _>")
        key = AccessKey(match[1], name, role, _digest(match[2]), now_ms, client_ids=tuple(client_ids))
        known = {each.key_id: each for each in await self.all()}.get(key.key_id)
        if known is None:
            await self._store(key)
        elif (known.digest, known.role) != (key.digest, role):
            raise InvalidRequest("key", f"there is another key {key.key_id!r}, or it has another role: {known.role}")
        elif client_ids and known.client_ids != key.client_ids:
            return await self.allow(key.key_id, client_ids)
        return known or key

    async def all(self) -> list[AccessKey]:
        """Those that can be read: one that cannot lets nobody in, and shuts nobody else out."""
        with store_errors():
            stored = await self._client.hgetall(self._hash)
        keys = [key for key_id, value in stored.items() if (key := self._read(key_id, value)) is not None]
        return sorted(keys, key=lambda key: key.created_ms)

    def _read(self, key_id: bytes, value: bytes) -> AccessKey | None:
        try:
            return msgspec.json.decode(value, type=AccessKey)
        except msgspec.MsgspecError as error:
            if self._told.is_new(key_id.decode(errors="replace")):
                log.error("access key unreadable", key_id=key_id.decode(errors="replace"), error=str(error))
            return None

    async def revoke(self, key_id: str) -> AccessKey:
        return await self._change(key_id, is_revoked=True)

    async def allow(self, key_id: str, client_ids: Sequence[str]) -> AccessKey:
        """To submit as these clients, and no longer as any it had before."""
        _check_clients(client_ids)
        return await self._change(key_id, client_ids=tuple(client_ids))

    async def _change(self, key_id: str, **fields: Any) -> AccessKey:
        with store_errors():
            stored = await self._client.hget(self._hash, key_id)
        if stored is None:
            raise InvalidRequest("key_id", f"there is no key {key_id!r}")
        try:
            known = msgspec.json.decode(stored, type=dict[str, Any])  # with fields of a later version, which stay
            changed = msgspec.convert({**known, **fields}, AccessKey)
        except msgspec.MsgspecError as error:
            raise InvalidRequest("key_id", f"what is kept of key {key_id!r} cannot be read: {error}") from error
        await self._put(key_id, {**known, **fields})
        return changed

    async def _store(self, key: AccessKey) -> None:
        await self._put(key.key_id, key)

    async def _put(self, key_id: str, key: AccessKey | dict[str, Any]) -> None:
        with store_errors():
            await self._client.hset(self._hash, key_id, msgspec.json.encode(key))


def _check(name: str, role: str, client_ids: Sequence[str]) -> None:
    if role not in ROLES:
        raise InvalidRequest("role", f"{role!r} is not one of {', '.join(ROLES)}")
    if not NAME.fullmatch(name):
        raise InvalidRequest("name", f"{name!r} is not a name: letters, digits, '_', '.', '-', at most 64")
    _check_clients(client_ids)


def _check_clients(client_ids: Sequence[str]) -> None:
    for client_id in client_ids:
        if client_id != ANY_CLIENT and not NAME.fullmatch(client_id):
            raise InvalidRequest("client_id", f"{client_id!r} is neither a client's name nor {ANY_CLIENT}")


def matching(key_text: str, known: dict[str, AccessKey]) -> AccessKey | None:
    """The key this text is, compared in constant time; None for one that is unknown, wrong or revoked."""
    match = KEY.fullmatch(key_text)
    key_id, secret = match.groups() if match else ("", "")
    found = known.get(key_id)
    is_right = hmac.compare_digest(_digest(secret), found.digest if found else NOBODY)
    return found if found and is_right and not found.is_revoked else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
