"""Helm writes its releases as Secrets in Kubernetes's protobuf: just enough of that format to read them.

An envelope of four bytes, then `Unknown{type: 1, raw: 2}`; a field is a varint of number and wire type.
"""

import base64
from collections.abc import Iterator
from typing import Any

MAGIC = b"k8s\0"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Fields = dict[int, list[bytes]]


def read_secret(body: bytes) -> dict[str, Any]:
    unknown = _fields(body.removeprefix(MAGIC))
    kind, secret = _fields(unknown[1][0]), _fields(unknown[2][0])
    meta = _fields(secret[1][0])
    if _text(kind, 2) != "Secret":
        raise ValueError(f"only Secrets are read as protobuf, not {_text(kind, 2)}")
    return {
        "apiVersion": _text(kind, 1),
        "kind": "Secret",
        "metadata": {"name": _text(meta, 1), "namespace": _text(meta, 3), "labels": _texts(meta.get(11, []))},
        "data": {name: base64.b64encode(value).decode() for name, value in _entries(secret.get(2, []))},
        "type": _text(secret, 3),
    }


def _text(fields: Fields, number: int) -> str:
    return fields.get(number, [b""])[0].decode()


def _texts(entries: list[bytes]) -> dict[str, str]:
    return {name: value.decode() for name, value in _entries(entries)}


def _entries(entries: list[bytes]) -> Iterator[tuple[str, bytes]]:
    """A map is a list of pairs: key is field 1, value field 2."""
    for entry in map(_fields, entries):
        yield _text(entry, 1), entry.get(2, [b""])[0]


def _fields(message: bytes) -> Fields:
    """Numbers are passed over: nothing here needs one."""
    found: Fields = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            _, at = _varint(message, at)
            continue
        size, at = _varint(message, at) if wire_type == BYTES else (8 if wire_type == FIXED64 else 4, at)
        found.setdefault(number, []).append(message[at : at + size])
        at += size
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
