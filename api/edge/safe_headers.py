"""Headers that keep browsers from making more of an answer than it is: no guessing at its kind, no frame, no cache.

Answers hold payloads, results and leases, so nothing keeps them unless it says so itself, as the pages do.
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
    """Around every route; what is refused before there is one gets them from `problems.respond`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        def adding(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                given = list(message["headers"])
                known = {name.lower() for name, _ in given}
                message["headers"] = given + [each for each in RAW if each[0] not in known]
            return send(message)

        await self._app(scope, receive, adding)  # type: ignore[arg-type] - messages of every kind
