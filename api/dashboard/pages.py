"""Serves the dashboard, one page for `/` and everything under `/ui/`, the page at `/docs`, and the assets of both.

Not in the OpenAPI document: the pages are clients of the public API. Files are compressed when they are built and read
once at start; if they were not built, the page explains how to build them.
"""

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from tideq.api.operations import PUBLIC, operation

STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TRUSTED_TYPES = "; require-trusted-types-for 'script'; trusted-types 'none'"
"""Not for `/docs`: Swagger UI writes HTML, which it has sanitized."""
ALWAYS = {
    "Content-Security-Policy": POLICY + TRUSTED_TYPES,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
FOR_EVER = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX, DOCS = "index.html", "docs.html"
NOT_BUILT = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>TideQ</title>
<h1>TideQ is running; its dashboard was not built</h1>
<p>The queue and its API work: <a href="/openapi.json">the API's description</a>.</p>
<p><code>make install</code> builds the dashboard and the API reference and needs the npm registry once.
Its output shows what went wrong. Run it again, then restart the service.</p>
</html>
"""


class Asset(msgspec.Struct, frozen=True):
    compressed: bytes
    headers: Mapping[str, str]
    etag: str


class Pages:
    """An ASGI application that serves the files of a folder."""

    def __init__(self, folder: Path = STATIC) -> None:
        found = {str(path.relative_to(folder).with_suffix("")): path.read_bytes() for path in folder.rglob("*.gz")}
        self._assets = {name: _asset(name, compressed) for name, compressed in found.items()}
        self._index = self._assets.get(INDEX) or _asset(INDEX, gzip.compress(NOT_BUILT))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context: Any = scope
        headers, method = dict(context["headers"]), context["method"]
        if method not in ("GET", "HEAD"):
            return await _send(send, 405, {**ALWAYS, "Allow": "GET, HEAD"}, b"")
        asset = self._find(scope["path"])
        if asset is None:
            return await _send(send, 404, ALWAYS, b"")
        if headers.get(b"if-none-match", b"").decode("latin-1") == asset.etag:
            return await _send(send, 304, asset.headers, b"")
        is_compressed = b"gzip" in headers.get(b"accept-encoding", b"")
        content = asset.compressed if is_compressed else gzip.decompress(asset.compressed)
        length = {"Content-Length": str(len(content))}
        encoding = {"Content-Encoding": "gzip"} if is_compressed else {}
        return await _send(send, 200, {**asset.headers, **length, **encoding}, content if method == "GET" else b"")

    def _find(self, path: str) -> Asset | None:
        """Every deep link is the page itself; a missing asset is None."""
        below = DOCS if path.strip("/") == "docs" else path.strip("/").removeprefix("ui").strip("/")
        return self._assets.get(below) or (None if below.startswith("assets/") else self._index)


def handlers(pages: Pages) -> list[ASGIRouteHandler]:
    public = operation(PUBLIC, answer=None)
    single = [asgi(path, copy_scope=True, opt=public)(pages) for path in ("/", "/docs")]
    return [*single, asgi("/ui", is_mount=True, copy_scope=True, opt=public)(pages)]


def _asset(name: str, compressed: bytes) -> Asset:
    """All files but the pages have a digest in their names, so they may be cached for ever."""
    etag = f'"{hashlib.sha256(compressed).hexdigest()[:20]}"'
    cache = REVALIDATE if name in (INDEX, DOCS) else FOR_EVER
    headers = {**ALWAYS, "Content-Type": KINDS[Path(name).suffix], "Cache-Control": cache, "ETag": etag}
    return Asset(compressed, headers | ({"Content-Security-Policy": POLICY} if name == DOCS else {}), etag)


async def _send(send: Send, status: int, headers: Mapping[str, str], content: bytes) -> None:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": content, "more_body": False})
