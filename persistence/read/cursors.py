"""Opaque cursors: where a list goes on, and which list that is.

A cursor carries a digest of the list it belongs to. That is no secret: it tells a damaged cursor, one of another list
and a guess from a real one, and there is nothing to win by making one up.
"""

import base64
import binascii
import hashlib
import hmac

DIGEST_LENGTH = 8


class CursorError(ValueError):
    """Not a cursor of this list."""


def make_cursor(scope: bytes, position: bytes) -> str:
    return base64.urlsafe_b64encode(position + _digest(scope, position)).rstrip(b"=").decode()


def read_cursor(scope: bytes, cursor: str) -> bytes:
    try:
        content = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise CursorError("this is no cursor of ours") from error
    position, digest = content[:-DIGEST_LENGTH], content[-DIGEST_LENGTH:]
    if not hmac.compare_digest(digest, _digest(scope, position)):
        raise CursorError("this cursor is damaged, or belongs to a list with other filters")
    return position


def _digest(scope: bytes, position: bytes) -> bytes:
    return hashlib.sha256(b"%d:%b%b" % (len(scope), scope, position)).digest()[:DIGEST_LENGTH]
