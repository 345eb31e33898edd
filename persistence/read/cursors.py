"""Opaque cursors of lists: the position of the next page, and a digest of the list they belong to.

The digest detects damaged cursors and those of another list. Limit: it is no secret and protects nothing; a forged
cursor only moves the position within a list that its sender may read anyhow.
"""

import base64
import binascii
import hashlib
import hmac

DIGEST_LENGTH = 8


class CursorError(ValueError):
    """The text is not a cursor of this list."""


def make_cursor(scope: bytes, position: bytes) -> str:
    return base64.urlsafe_b64encode(position + _digest(scope, position)).rstrip(b"=").decode()


def read_cursor(scope: bytes, cursor: str) -> bytes:
    try:
        content = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise CursorError("the cursor is not valid: pass next_cursor of the previous page unchanged") from error
    position, digest = content[:-DIGEST_LENGTH], content[-DIGEST_LENGTH:]
    if not hmac.compare_digest(digest, _digest(scope, position)):
        raise CursorError("the cursor is damaged or belongs to a list with other filters: start again without a cursor")
    return position


def _digest(scope: bytes, position: bytes) -> bytes:
    return hashlib.sha256(b"%d:%b%b" % (len(scope), scope, position)).digest()[:DIGEST_LENGTH]
