"""Where a service is: its URL in parts, the headers of every request, and the proxy and authorities to use."""

import base64
import os
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from tideq.client.http.exchange import HttpRequest

IN_PATHS = "/%:@!$&'()*+,;=~"
USUAL_PORTS = {"http": 80, "https": 443}


class Endpoint(NamedTuple):
    scheme: str
    host: str
    port: int
    base: str
    """Before every path."""
    headers: dict[str, str]

    @property
    def origin(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{name}" + ("" if self.port == USUAL_PORTS[self.scheme] else f":{self.port}")

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    def target(self, request: HttpRequest) -> str:
        return self.base + request.path + (f"?{urlencode(request.params)}" if request.params else "")


def endpoint_of(url: str, headers: Mapping[str, str]) -> Endpoint:
    """Raises ValueError for a URL that is not of an HTTP server. A name and a password in it replace the key."""
    parts = urlsplit(url)
    if parts.scheme not in USUAL_PORTS or not parts.hostname or not url.isprintable() or " " in url:
        raise ValueError(f"{url!r} is not an http:// or https:// address")
    port = USUAL_PORTS[parts.scheme] if parts.port is None else parts.port
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    own = {"Accept": "*/*", "Accept-Encoding": "gzip", "Content-Type": "application/json", **headers}
    if parts.username or parts.password:
        own["Authorization"] = _basic(parts.username or "", parts.password or "")
    return Endpoint(parts.scheme, host, port, quote(parts.path.rstrip("/"), safe=IN_PATHS), own)


def proxy_for(endpoint: Endpoint) -> str | None:
    """The proxy that the environment or the system names for this service, unless NO_PROXY names its host."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    proxy = proxies.get(endpoint.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(f"{endpoint.host}:{endpoint.port}"):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def trust(verify: ssl.SSLContext | bool, environ: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """The authorities of SSL_CERT_FILE, else of SSL_CERT_DIR, else certifi's. Reading them takes milliseconds."""
    if isinstance(verify, ssl.SSLContext):
        return verify
    if not verify:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    if file := environ.get("SSL_CERT_FILE"):
        return ssl.create_default_context(cafile=file)
    if folder := environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context(capath=folder)
    import certifi

    return ssl.create_default_context(cafile=certifi.where())


def _basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
