"""Security headers of every response: no content sniffing, no frames, no caching.

Responses hold payloads, results and leases, so they are not cached unless they allow it themselves, as the pages do.
"""

from collections.abc import Awaitable

from litestar.types import ASGIApp, Message, Receive, Scope, Send

SAFE = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
RAW = [(name.encode(), value.encode()) for name, value in SAFE.items()]


class SafeHeaders:
    """Wraps every route. A request refused before its route gets them from `problems.respond`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        def adding(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                given = list(message["headers"])
                names = {name.lower() for name, _ in given}
                message["headers"] = given + [each for each in RAW if each[0] not in names]
            return send(message)

        await self._app(scope, receive, adding)  # type: ignore[arg-type] - messages of every kind
