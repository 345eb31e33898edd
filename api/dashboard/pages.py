"""Handing out the dashboard: one page for `/` and everything under `/ui/`, its assets for ever, nothing else.

Not part of the API and so not in its description: the page uses the public API like everybody else. Read once, when the
service starts; without a built dashboard the page says so in words, and the service runs as it would anyway.
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
ASK_AGAIN = "no-cache"
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
<p>The queue and its API work as always: <a href="/docs">every call, described and to try</a>.</p>
<p>The dashboard is built from sources by <code>make install</code>, which needs the npm registry once.
Its output says what went wrong. Run it again, then start the service anew.</p>
</html>
"""


class Asset(msgspec.Struct, frozen=True):
    content: bytes
    compressed: bytes
    headers: Mapping[str, str]
    etag: str


class Pages:
    """An ASGI application: what lies in a folder, by the path below `/ui/`."""

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
        told = {**asset.headers, "Content-Length": str(len(content))}
        encoding = {"Content-Encoding": "gzip"} if is_compressed else {}
        return await _send(send, 200, {**told, **encoding}, content if method == "GET" else b"")

    def _find(self, path: str) -> Asset | None:
        """A link into the page is the page; an asset that is not there is not."""
        below = path.strip("/").removeprefix("ui").strip("/")
        return self._assets.get(below) or (None if below.startswith("assets/") else self._index)


def handlers(pages: Pages) -> list[ASGIRouteHandler]:
    public = operation(PUBLIC, answer=None)
    page = asgi("/", copy_scope=True, opt=public)(pages)
    return [page, asgi("/ui", is_mount=True, copy_scope=True, opt=public)(pages)]


def _asset(name: str, content: bytes) -> Asset:
    """Everything but the page itself carries a digest in its name."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    cache = FOR_EVER if name != INDEX else ASK_AGAIN
    headers = {**ALWAYS, "Content-Type": KINDS[Path(name).suffix], "Cache-Control": cache, "ETag": etag}
    return Asset(content, gzip.compress(content, 9, mtime=0), headers, etag)


async def _send(send: Send, status: int, headers: Mapping[str, str], content: bytes) -> None:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": content, "more_body": False})
