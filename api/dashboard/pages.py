"""Serves the dashboard: one page for `/` and everything under `/ui/`, and its assets.

Not in the OpenAPI document: the page is a client of the public API. Files are read once at start; without a built
dashboard the page explains how to build it.
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
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
ALWAYS = {
    "Content-Security-Policy": POLICY,
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
INDEX = "index.html"
NOT_BUILT = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>TideQ</title>
<h1>TideQ is running; its dashboard was not built</h1>
<p>The queue and its API work: <a href="/docs">API reference</a>.</p>
<p><code>make install</code> builds the dashboard from its sources and needs the npm registry once.
Its output shows what went wrong. Run it again, then restart the service.</p>
</html>
"""


class Asset(msgspec.Struct, frozen=True):
    content: bytes
    compressed: bytes
    headers: Mapping[str, str]
    etag: str


class Pages:
    """An ASGI application that serves the files of a folder below `/ui/`."""

    def __init__(self, folder: Path = STATIC) -> None:
        files = [path for path in folder.rglob("*") if path.suffix in KINDS] if folder.is_dir() else []
        self._assets = {str(path.relative_to(folder)): _asset(path.name, path.read_bytes()) for path in files}
        self._index = self._assets.get(INDEX) or _asset(INDEX, NOT_BUILT)

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
        content = asset.compressed if is_compressed else asset.content
        length = {"Content-Length": str(len(content))}
        encoding = {"Content-Encoding": "gzip"} if is_compressed else {}
        return await _send(send, 200, {**asset.headers, **length, **encoding}, content if method == "GET" else b"")

    def _find(self, path: str) -> Asset | None:
        """Every deep link is the page itself; a missing asset is None."""
        below = path.strip("/").removeprefix("ui").strip("/")
        return self._assets.get(below) or (None if below.startswith("assets/") else self._index)


def handlers(pages: Pages) -> list[ASGIRouteHandler]:
    public = operation(PUBLIC, answer=None)
    page = asgi("/", copy_scope=True, opt=public)(pages)
    return [page, asgi("/ui", is_mount=True, copy_scope=True, opt=public)(pages)]


def _asset(name: str, content: bytes) -> Asset:
    """All files but the page have a digest in their names, so they may be cached for ever."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    cache = FOR_EVER if name != INDEX else REVALIDATE
    headers = {**ALWAYS, "Content-Type": KINDS[Path(name).suffix], "Cache-Control": cache, "ETag": etag}
    return Asset(content, gzip.compress(content, 9, mtime=0), headers, etag)


async def _send(send: Send, status: int, headers: Mapping[str, str], content: bytes) -> None:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": content, "more_body": False})
