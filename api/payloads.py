"""The edge: what a request's bytes must be before anything recursive, and before any store, sees them.

A document is checked as it came and kept as it came. What is accepted here PostgreSQL can hold as text, so history can
never choke on it later.
"""

import re
from typing import TypeVar

import msgspec

from tideq.api.problems import BadRequest, UnprocessableContent

MAX_NESTING = 32

T = TypeVar("T")

_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*+"?+', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def decode(body: bytes, kind: type[T]) -> T:
    """A request's body as a struct; whatever is wrong with it becomes a problem document that says where."""
    check_nesting(body)
    check_no_nul("the body", body)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise UnprocessableContent.at(str(error)) from error
    except UnicodeDecodeError as error:
        raise BadRequest("the body is not UTF-8") from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error


def check_document(field: str, document: bytes) -> bytes:
    """A JSON value that is kept as its bytes: well-formed, and nothing in it that a database refuses."""
    try:
        msgspec.json.decode(document)
    except msgspec.ValidationError as error:
        raise UnprocessableContent(f"{field}: {error}", pointer=f"/{field}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{field} is not UTF-8") from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"{field} is not JSON: {error}") from error
    return document


def check_no_nul(name: str, body: bytes) -> None:
    """No text column can hold one, and no text of ours needs one."""
    if b"\\u0000" in body and _NUL.search(body):
        raise UnprocessableContent(f"{name} holds a NUL character")


def check_nesting(body: bytes) -> None:
    """Counted on the bytes: a parser that recurses must not be the one to find out.

    Texts and everything but brackets are dropped; each round then takes out the innermost level.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return
    brackets = _TEXTS.sub(b"", body).translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(MAX_NESTING):
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise BadRequest(f"the body nests deeper than {MAX_NESTING} levels, or its brackets do not match")
