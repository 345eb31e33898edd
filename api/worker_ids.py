"""Worker ids bound to the key that registered them: no other key may use them.

An id is `<name>-<random><mark>`; the mark is a MAC of everything before it under the key's digest. So the check needs
no store call, and neither another key's id nor an invented one passes. A key that replaces another must register its
workers again.

Persisted only as long as the worker lives: the format may be changed freely, workers then register again.
"""

import base64
import hashlib
import hmac
import secrets

MAX_NAME_LENGTH = 40
MARK_LENGTH = 10
"""Fifty bits; the whole id stays within the 64 characters of a name."""


def make_worker_id(name: str, key_digest: str) -> str:
    unmarked = f"{name[:MAX_NAME_LENGTH]}-{secrets.token_hex(6)}"
    return unmarked + _mark(unmarked, key_digest)


def is_made_for(worker_id: str, key_digest: str) -> bool:
    unmarked, mark = worker_id[:-MARK_LENGTH], worker_id[-MARK_LENGTH:]
    return hmac.compare_digest(_mark(unmarked, key_digest).encode(), mark.encode())


def _mark(unmarked: str, key_digest: str) -> str:
    mac = hmac.digest(key_digest.encode(), b"worker " + unmarked.encode(), hashlib.sha256)
    return base64.b32encode(mac).decode().lower()[:MARK_LENGTH]
