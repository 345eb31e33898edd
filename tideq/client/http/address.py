"""Where a service is, and requests as bytes for it. Pure."""

import base64
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from tideq.client.http.exchange_failures import Misunderstood

PLAIN_PORT, SECURE_PORT = 80, 443
IN_PATHS = "/%:@!$&'()*+,;=~"
HAVE_A_BODY = ("POST", "PUT", "PATCH")


class ServiceAddress(NamedTuple):
    host: str
    port: int
    is_secure: bool
    base: str
    """Before every path."""
    head: str
    """Lines that every request has."""

    def request(
        self,
        method: str,
        path: str,
        params: Iterable[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> bytes:
        query = f"?{urlencode(list(params))}" if params else ""
        length = "" if body is None and method not in HAVE_A_BODY else f"content-length: {len(body or b'')}\r\n"
        own = lines(headers) if headers else ""
        head = f"{method} {self.base}{path}{query} HTTP/1.1\r\n{self.head}{own}{length}\r\n"
        return head.encode("ascii") + body if body else head.encode("ascii")


def address_of(url: str, headers: Mapping[str, str]) -> ServiceAddress:
    """Raises ValueError for what is no address of an HTTP server. A name and a password in it go before a key."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        raise ValueError(f"{url!r} is not an http:// or https:// address")
    is_secure = parts.scheme == "https"
    usual = SECURE_PORT if is_secure else PLAIN_PORT
    port = usual if parts.port is None else parts.port
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    name = f"[{host}]" if ":" in host else host
    about = {"host": name if port == usual else f"{name}:{port}", **headers}
    if parts.username or parts.password:
        about = {each: value for each, value in about.items() if each.lower() != "authorization"}
        about["authorization"] = _basic(parts.username or "", parts.password or "")
    return ServiceAddress(host, port, is_secure, quote(parts.path.rstrip("/"), safe=IN_PATHS), lines(about))


def lines(headers: Mapping[str, str]) -> str:
    """What would end a line, or is not ASCII, has no place in one."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if not text.isascii() or not text.replace("\r\n", "", len(headers)).isprintable():
        raise Misunderstood("a header of the request holds characters that no header has")
    return text


def _basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
