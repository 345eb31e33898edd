"""Access keys of callers of the service. Stored hashed; shown once, at creation.

A key is `tq_<id>_<secret>`. The secret is 32 random bytes, so a plain SHA-256 resists guessing. Checking takes the same
work for an unknown, a wrong and a revoked key.
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
from tideq.queue_core.name_rules import NAME
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store.driver_errors import store_errors

ANY_CLIENT = "*"
ROLES = ("producer", "worker", "viewer", "admin")
KEY = re.compile(r"tq_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
LOG_AGAIN_SECONDS = 300.0
NO_DIGEST = hashlib.sha256(secrets.token_bytes(32)).hexdigest()

log = structlog.get_logger(__name__)


class AccessKey(msgspec.Struct, frozen=True):
    """The stored part of a key. Persisted as JSON: add fields with defaults, never rename one."""

    key_id: str
    name: str
    role: str
    digest: str
    created_ms: int
    is_revoked: bool = False
    client_ids: tuple[str, ...] = ()
    """Clients that the key may submit as, besides the client of its own name; `*` is any."""


class AccessKeys:
    def __init__(self, client: Any, keys: Keys) -> None:
        self._client = client
        self._hash = keys.key("access_keys")
        self._logged = LogOnce(LOG_AGAIN_SECONDS)

    async def create(self, name: str, role: str, now_ms: int, client_ids: Sequence[str] = ()) -> str:
        """Returns the new key with its secret, which is not stored and cannot be shown again."""
        _check(name, role, client_ids)
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        await self._store(AccessKey(key_id, name, role, _digest(secret), now_ms, client_ids=tuple(client_ids)))
        return f"tq_{key_id}_{secret}"

    async def adopt(
        self, key_text: str, name: str, role: str, now_ms: int, client_ids: Sequence[str] = ()
    ) -> AccessKey:
        """Add a key that was made elsewhere. An existing key only gets new clients; a revoked one stays revoked."""
        _check(name, role, client_ids)
        match = KEY.fullmatch(key_text)
        if match is None:
            raise InvalidRequest("key", f"the key of {name!r} is not tq_<12 hex digits>_<43 letters, digits, - or _>")
        key = AccessKey(match[1], name, role, _digest(match[2]), now_ms, client_ids=tuple(client_ids))
        existing = {each.key_id: each for each in await self.all()}.get(key.key_id)
        if existing is None:
            await self._store(key)
        elif (existing.digest, existing.role) != (key.digest, role):
            raise InvalidRequest(
                "key", f"key {key.key_id!r} exists with another secret or another role: {existing.role}"
            )
        elif client_ids and existing.client_ids != key.client_ids:
            return await self.allow(key.key_id, client_ids)
        return existing or key

    async def all(self) -> list[AccessKey]:
        """Returns the readable keys by age. An unreadable key is logged, grants nothing and hides no other key."""
        with store_errors():
            stored = await self._client.hgetall(self._hash)
        keys = [key for key_id, value in stored.items() if (key := self._read(key_id, value)) is not None]
        return sorted(keys, key=lambda key: key.created_ms)

    def _read(self, key_id: bytes, value: bytes) -> AccessKey | None:
        try:
            return msgspec.json.decode(value, type=AccessKey)
        except msgspec.MsgspecError as error:
            if self._logged.is_new(key_id.decode(errors="replace")):
                log.error("access key unreadable", key_id=key_id.decode(errors="replace"), error=str(error))
            return None

    async def revoke(self, key_id: str) -> AccessKey:
        return await self._change(key_id, is_revoked=True)

    async def allow(self, key_id: str, client_ids: Sequence[str]) -> AccessKey:
        """Replace the clients that the key may submit as."""
        _check_clients(client_ids)
        return await self._change(key_id, client_ids=tuple(client_ids))

    async def _change(self, key_id: str, **fields: Any) -> AccessKey:
        with store_errors():
            stored = await self._client.hget(self._hash, key_id)
        if stored is None:
            raise InvalidRequest("key_id", f"no key has the id {key_id!r}")
        try:
            present = msgspec.json.decode(stored, type=dict[str, Any])  # a dict keeps fields of a later version
            changed = msgspec.convert({**present, **fields}, AccessKey)
        except msgspec.MsgspecError as error:
            raise InvalidRequest("key_id", f"the stored key {key_id!r} cannot be read: {error}") from error
        await self._put(key_id, {**present, **fields})
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


def matching(key_text: str, keys: dict[str, AccessKey]) -> AccessKey | None:
    """Returns the access key of this text, compared in constant time; None if unknown, wrong or revoked."""
    match = KEY.fullmatch(key_text)
    key_id, secret = match.groups() if match else ("", "")
    found = keys.get(key_id)
    is_right = hmac.compare_digest(_digest(secret), found.digest if found else NO_DIGEST)
    return found if found and is_right and not found.is_revoked else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
