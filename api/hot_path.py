"""Answers the calls made for every task without Litestar, whose routing, injection, request and response objects take
four times as long as such a call's handler (docs/http-server.md).

An ASGI application around the framework's. A route declared as hot is found here by its path and its handler called
directly, behind the same middleware: it has one declaration and one function on both ways, and the same answers. Any
other request (another method, a query, a trailing slash, an odd host, a body of unknown length or too large) goes to
the framework. `TIDEQ_HOT_PATH=off` sends all of them there.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Send

from tideq.api.edge.auth import Caller
from tideq.api.edge.middleware import HEADERS, Headers, RequestMiddleware
from tideq.api.edge.problems import ClientDisconnected
from tideq.api.operations import operation_of_handler
from tideq.api.service import Service

HOST = re.compile(rb"[0-9A-Za-z.\-]*(:[0-9]+)?")


class HotRoute(NamedTuple):
    handler: HTTPRouteHandler
    path: str
    max_body_bytes: int


class HotPath:
    def __init__(self, app: ASGIApp, service: Service, routes: Iterable[tuple[str, HTTPRouteHandler]]) -> None:
        self._app = app
        self._service = service
        self._around_handlers = RequestMiddleware(self._call_handler, service)
        found = [
            HotRoute(handler, path, handler.resolve_request_max_body_size() or 0)
            for path, handler in routes
            if operation_of_handler(handler).is_hot
        ]
        self._plain = {route.path: route for route in found if "{" not in route.path}
        self._workers = {tuple(route.path.split("/{worker_id}/")): route for route in found if "{" in route.path}

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        is_hot = scope["type"] == "http" and scope["method"] == "POST" and not scope["query_string"]
        if is_hot and self._route(scope):
            await self._around_handlers(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _route(self, scope: Any) -> bool:
        """Sets in the scope what Litestar's router would; False if the request is not for here."""
        path, parameters = scope["path"], dict[str, str]()
        route = self._plain.get(path)
        if route is None:
            rest, _, verb = path.rpartition("/")
            head, _, worker_id = rest.rpartition("/")
            route, parameters = self._workers.get((head, verb)), {"worker_id": worker_id}
            if route is None or not worker_id:
                return False
        headers = Headers(scope["headers"])
        if len(headers.raw) != len(scope["headers"]) or not _is_plain(headers.raw, route.max_body_bytes):
            return False
        scope["route_handler"], scope["path_template"], scope["path_params"] = route.handler, route.path, parameters
        scope[HEADERS] = headers
        return True

    async def _call_handler(self, scope: Any, receive: Receive, send: Send) -> None:
        request = HotRequest(scope, receive)
        try:
            answer = await scope["route_handler"].fn(request=request, service=self._service, **scope["path_params"])
        except Exception as error:
            # Any error, as in Litestar's exception handlers.
            answer = self._service.error_responder.respond(scope, error)
        await answer.send(send)


def _is_plain(headers: Mapping[bytes, bytes], max_body_bytes: int) -> bool:
    """Whether the host is a plain one and the body of a known and allowed length."""
    length = headers.get(b"content-length", b"x" if b"transfer-encoding" in headers else b"0")
    is_short = length.isdigit() and int(length) <= max_body_bytes
    return is_short and HOST.fullmatch(headers.get(b"host", b"")) is not None


class HotRequest:
    """The part of Litestar's request that the handlers of hot routes use."""

    def __init__(self, scope: Any, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.headers: Headers = scope[HEADERS]
        self.user: Caller = scope["user"]

    async def body(self) -> bytes:
        """To be called once. Raises `ClientDisconnected`."""
        parts = list[bytes]()
        while True:
            message: Any = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)
