"""Checks of a request's head that RFC 9112 requires beyond its grammar: version, Host, transfer coding."""

import functools
import re
from typing import Any
from urllib.parse import unquote

import httptools

from tideq.api.edge.problems import BadRequest, CodingNotSupported, VersionNotSupported

VERSIONS = ("1.1", "1.0")
HOST = re.compile(rb"(?:[0-9A-Za-z._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
PLAIN_URL = re.compile(rb"/(?!/)[0-9A-Za-z/_.~-]*")
"""A target that is only a path and needs no parsing."""


def check_version(version: str) -> None:
    if version == "0.9":
        raise BadRequest("the request has no HTTP version; use HTTP/1.1")
    if version not in VERSIONS:
        raise VersionNotSupported(f"HTTP/{version} is not supported; use HTTP/1.1")


@functools.lru_cache(maxsize=1_024)
def check_host(host: bytes) -> None:
    """Checks the grammar only; `host_check` decides later whether the host is allowed."""
    if not HOST.fullmatch(host):
        raise BadRequest("the Host header must be a host, or a host and a port")


def check_coding(coding: bytes, version: str) -> None:
    """A body in any other coding would reach the application undecoded."""
    if version == "1.0":
        raise BadRequest("HTTP/1.0 has no Transfer-Encoding; send a Content-Length")
    if coding.strip().lower() != b"chunked":
        raise CodingNotSupported(
            f"Transfer-Encoding {coding.decode('latin-1')[:100]!r} is not supported; use `chunked` alone"
        )


def address_of(url: bytes) -> tuple[dict[str, Any], bytes | None]:
    """The ASGI scope's part for a request target, and the host in the target, which overrides the Host header."""
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
        raise BadRequest("the request target must not contain a user name")
    if parsed.host is None:
        return None
    host = b"[%b]" % parsed.host if b":" in parsed.host else parsed.host
    return b"%b:%d" % (host, parsed.port) if parsed.port else host
