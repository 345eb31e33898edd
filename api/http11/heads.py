"""What RFC 9112 asks of a request's head beyond its grammar: a version we speak, one Host, no coding but chunks."""

import functools
import re
from typing import Any
from urllib.parse import unquote

import httptools

from tideq.api.edge.problems import BadRequest, CodingNotSupported, VersionNotSupported

VERSIONS = ("1.1", "1.0")
HOST = re.compile(rb"(?:[0-9A-Za-z._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
PLAIN_URL = re.compile(rb"/(?!/)[0-9A-Za-z/_.~-]*")
"""One that is its path, and needs no parsing."""


def check_version(version: str) -> None:
    if version == "0.9":
        raise BadRequest("the request names no HTTP version")
    if version not in VERSIONS:
        raise VersionNotSupported(f"this is HTTP/{version}; speak HTTP/1.1")


@functools.lru_cache(maxsize=1_024)
def check_host(host: bytes) -> None:
    """Its grammar only: whether a host is ours to answer for is decided later."""
    if not HOST.fullmatch(host):
        raise BadRequest("the Host header is not a host with or without a port")


def check_coding(coding: bytes, version: str) -> None:
    """A body in any other coding would be passed on undecoded."""
    if version == "1.0":
        raise BadRequest("HTTP/1.0 has no Transfer-Encoding")
    if coding.strip().lower() != b"chunked":
        raise CodingNotSupported(f"Transfer-Encoding: {coding.decode('latin-1')[:100]!r} is not `chunked`")


def address_of(url: bytes) -> tuple[dict[str, Any], bytes | None]:
    """What ASGI wants to know of a target, and the host it names itself, which goes before the header."""
    if PLAIN_URL.fullmatch(url):
        return {"path": url.decode(), "raw_path": url, "query_string": b""}, None
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    address = {
        "path": unquote(path) if "%" in path else path,
        "raw_path": parsed.path,
        "query_string": parsed.query or b"",
    }
    return address, _host_of(parsed)


def _host_of(parsed: Any) -> bytes | None:
    if parsed.userinfo is not None:
        raise BadRequest("the target names a user")
    if parsed.host is None:
        return None
    host = b"[%b]" % parsed.host if b":" in parsed.host else parsed.host
    return b"%b:%d" % (host, parsed.port) if parsed.port else host
