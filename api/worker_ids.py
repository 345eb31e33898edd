"""Worker ids that show whose they are: a worker may only be spoken for by the key that registered it.

An id is `<name>-<random><mark>`, the mark a MAC of all before it under the key's digest. So whether a key may use an id
is known without asking the store, and neither a foreign nor a made-up id passes. Another key, also one that replaces
it, needs a registration of its own.

Persisted only as long as the worker lives: to change how ids are made, change it; workers register again.
"""

import base64
import hashlib
import hmac
import secrets

MAX_NAME_LENGTH = 40
MARK_LENGTH = 10
"""Fifty bits: with the rest of an id it stays within the 64 characters of a name."""


def make_worker_id(name: str, key_digest: str) -> str:
    unmarked = f"{name[:MAX_NAME_LENGTH]}-{secrets.token_hex(6)}"
    return unmarked + _mark(unmarked, key_digest)


def is_made_for(worker_id: str, key_digest: str) -> bool:
    unmarked, mark = worker_id[:-MARK_LENGTH], worker_id[-MARK_LENGTH:]
    return hmac.compare_digest(_mark(unmarked, key_digest).encode(), mark.encode())


def _mark(unmarked: str, key_digest: str) -> str:
    mac = hmac.digest(key_digest.encode(), b"worker " + unmarked.encode(), hashlib.sha256)
    return base64.b32encode(mac).decode().lower()[:MARK_LENGTH]
