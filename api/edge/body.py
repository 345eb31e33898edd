"""Checks and decodes request bodies before any recursive parser and any store sees them.

A document is checked and stored as the bytes that arrived. PostgreSQL can hold as text everything that is accepted
here, so replication never fails on it later.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from tideq.api.edge.problems import BadRequest, UnprocessableContent
from tideq.persistence.terms import MAX_VALUE_LENGTH

MAX_NESTING = 32

T = TypeVar("T")

_decode_any = msgspec.json.Decoder().decode
_decode_rows = msgspec.json.Decoder(list[msgspec.Raw]).decode
decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_TOO_DEEP = b"[" * (MAX_NESTING + 1)
_CHUNK = 65_536
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def decode(body: bytes, kind: type[T]) -> T:
    """The body as a struct. Raises `BadRequest` or `UnprocessableContent`, which names the field."""
    check_nesting(body)
    check_no_nul("the body", body)
    try:
        decoded = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise UnprocessableContent.at(str(error)) from error
    except UnicodeDecodeError as error:
        raise BadRequest("the body is not UTF-8") from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    check_names(body)
    return decoded


def check_names(body: bytes, prefix: str = "") -> None:
    """Raises if a field of a decoded object appears twice: msgspec silently uses the last value.

    Counts colons: each pair has one outside its value, and the names of our structs contain none.
    """
    kept = decode_object(body)
    if body.count(b":") - b"".join(kept.values()).count(b":") != len(kept):
        name = _repeated_name(body)
        raise UnprocessableContent(f"the field {name!r} appears twice", pointer=f"/{prefix}{name}")


def check_names_of_rows(body: bytes, field: str, plain_names: int, plain_values: Sequence[msgspec.Raw]) -> None:
    """The same for a list of objects.

    `plain_names` counts the fields that are surely present, with these values. If there are no more colons than theirs,
    no row is decoded, which saves 5 % of a batch.
    """
    rows = bytes(decode_object(body)[field])
    if rows.count(b":") != plain_names + b"".join(plain_values).count(b":"):
        for number, row in enumerate(_decode_rows(rows)):
            check_names(bytes(row), f"{field}/{number}/")


def _repeated_name(body: bytes) -> str:
    """The hook is called for the outermost object last."""
    objects = list[list[str]]()
    json.loads(body, parse_int=str, object_pairs_hook=lambda pairs: objects.append([name for name, _ in pairs]))
    return next(name for name, count in Counter(objects[-1]).items() if count > 1)


def check_document(field: str, document: bytes, prefix: str = "") -> bytes:
    """Checks a JSON value that is stored as its bytes. `prefix` is the path to the field in the body."""
    try:
        _decode_any(document)
    except msgspec.ValidationError as error:
        raise UnprocessableContent(f"{prefix}{field}: {error}", pointer=f"/{prefix}{field}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{prefix}{field} is not UTF-8") from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"{prefix}{field} is not JSON: {error}") from error
    return document


def check_no_nul(name: str, body: bytes) -> None:
    """PostgreSQL's text columns cannot hold NUL."""
    if b"\\u0000" in body and _NUL.search(body):
        raise UnprocessableContent(f"{name} contains a NUL character; remove it")


def check_nesting(body: bytes) -> None:
    """Counts nesting on the bytes, so that no recursive parser meets a body that is too deep.

    Strings and everything but brackets are dropped; each round then removes the innermost level. No loop over single
    bytes: 25 µs for a batch of 100 tasks, against 490 with a regular expression.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = _outside_texts(body.translate(_ONE_KIND, _NO_MARKS).replace(b'""', b""))
    for _ in range(MAX_NESTING):
        if _TOO_DEEP in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return
    raise BadRequest(f"the body is nested deeper than {MAX_NESTING} levels, or its brackets do not match")


def _outside_texts(marks: bytes) -> bytes:
    """A chunk at a time: a body full of quotes must not become a list of millions."""
    outside: list[bytes] = []
    is_inside = 0
    for start in range(0, len(marks), _CHUNK):
        pieces = marks[start : start + _CHUNK].split(b'"')
        outside.append(b"".join(pieces[is_inside::2]))
        is_inside ^= (len(pieces) - 1) & 1
    return b"".join(outside)


def searchable_in(parameters: bytes, names: Sequence[str]) -> dict[str, str]:
    """The named parameters that are strings, numbers or booleans: strings as they are, the others as JSON."""
    found = decode_object(parameters)
    values = {name: bytes(found[name]) for name in names if name in found}
    return {name: _as_text(value) for name, value in values.items() if value[:1] not in b"[{n"}


def _as_text(value: bytes) -> str:
    """Cut at the length that history indexes."""
    text = msgspec.json.decode(value, type=str) if value[:1] == b'"' else value.decode()
    return text[:MAX_VALUE_LENGTH]
