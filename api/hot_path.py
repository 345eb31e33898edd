"""Answers the calls made for every task without Litestar, whose routing, injection, guards and response objects take
80 µs a request (docs/http-server.md).

A route declared as frequent is found here by its path and its handler called directly. It has one declaration and one
function on both paths. Any other request (another method, a query, a trailing slash, an odd host, a body of unknown
length or too large) goes through Litestar, and a test compares the two paths.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Protocol

from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from tideq.api.edge.auth import Authenticator, require_own_worker, require_role
from tideq.api.edge.claim_response import ClaimResponse
from tideq.api.edge.disconnect import ClientDisconnected
from tideq.api.edge.responses import body_message, response_headers
from tideq.api.hot_request import HotRequest
from tideq.api.metrics.request_metrics import CLIENT_CLOSED, StartTimer, outcome_of
from tideq.api.operations import operation_of_handler
from tideq.api.service import Service

HOST = re.compile(rb"[0-9A-Za-z.\-]*(:[0-9]+)?")

RawHeaders = list[tuple[bytes, bytes]]
Refuse = Callable[[Request[Any, Any, Any], Exception], Response[Any]]


class ResponseWriter(Protocol):
    """Reads the request's body and writes the response."""

    has_begun: bool
    """A part of the response has been written."""

    def receive(self) -> Awaitable[Any]: ...
    async def body(self) -> bytes: ...
    async def send(self, message: Any) -> None: ...
    async def respond(self, status: int, headers: RawHeaders, content: bytes) -> None: ...


class HotRoute(NamedTuple):
    handler: HTTPRouteHandler
    path: str
    roles: frozenset[str]
    max_body_bytes: int
    answer: Callable[..., Awaitable[Response[bytes]]]


class Match(NamedTuple):
    """A hot route and the values from the request's head."""

    route: HotRoute
    headers: dict[bytes, bytes]
    parameters: dict[str, str]


class HotPath:
    """`begin` starts a request's timer and `refuse` makes a response of an error, as for all other requests."""

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        routes: Iterable[tuple[str, HTTPRouteHandler]],
        begin: StartTimer,
        refuse: Refuse,
    ) -> None:
        self._app = app
        self._service = service
        self._authenticator: Authenticator = service.authenticator
        self._begin = begin
        self._refuse = refuse
        found = [
            HotRoute(
                handler,
                path,
                operation_of_handler(handler).roles,
                handler.resolve_request_max_body_size() or 0,
                handler.fn,
            )
            for path, handler in routes
            if operation_of_handler(handler).is_hot
        ]
        self._plain = {route.path: route for route in found if "{" not in route.path}
        self._workers = {tuple(route.path.split("/{worker_id}/")): route for route in found if "{" in route.path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if match := self.find(scope):
            await self.answer(scope, match, AsgiWriter(receive, send))
        else:
            await self._app(scope, receive, send)

    def find(self, scope: Any) -> Match | None:
        if scope["method"] != "POST" or scope["query_string"]:
            return None
        path, parameters = scope["path"], dict[str, str]()
        route = self._plain.get(path)
        if route is None:
            rest, _, verb = path.rpartition("/")
            head, _, worker_id = rest.rpartition("/")
            route, parameters = self._workers.get((head, verb)), {"worker_id": worker_id}
            if route is None or not worker_id:
                return None
        headers = dict(scope["headers"])
        is_plain = len(headers) == len(scope["headers"]) and HOST.fullmatch(headers.get(b"host", b""))
        length = headers.get(b"content-length", b"x" if b"transfer-encoding" in headers else b"0")
        if not is_plain or not length.isdigit() or int(length) > route.max_body_bytes:
            return None
        return Match(route, headers, parameters)

    async def answer(self, scope: Any, match: Match, writer: ResponseWriter) -> None:
        route, headers, parameters = match
        # Litestar sets these; `refuse` and the timer read them.
        scope["route_handler"], scope["path_template"], scope["path_params"] = route.handler, route.path, parameters
        timer, status, failure = self._begin(scope), CLIENT_CLOSED, None
        try:
            answer = await self._answer(match, HotRequest(scope, headers, writer))
            status = answer.status_code or 200
            if isinstance(answer, ClaimResponse):
                await answer.send(writer.receive, writer.send)
            else:
                await writer.respond(status, response_headers(answer), answer.content)
        except Exception as error:
            # Any error, as in Litestar's exception handlers.
            status, failure = outcome_of(error)
            if writer.has_begun:
                raise
            refusal = self._refuse(Request(scope, writer.receive, writer.send), error)
            await writer.respond(status, response_headers(refusal), refusal.content)
        finally:
            timer.end(status, failure)

    async def _answer(self, match: Match, request: HotRequest) -> Response[bytes]:
        route, _, parameters = match
        request.user = caller = await self._authenticator.caller(request.headers)
        require_role(caller, route.roles)
        if parameters:
            require_own_worker(caller, parameters["worker_id"])
        return await route.answer(request=request, service=self._service, **parameters)


class AsgiWriter:
    """A `ResponseWriter` for any ASGI server."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.receive = receive
        self.has_begun = False
        self._send = send

    async def send(self, message: Any) -> None:
        self.has_begun = True
        await self._send(message)

    async def respond(self, status: int, headers: RawHeaders, content: bytes) -> None:
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send(body_message(content, more=False))

    async def body(self) -> bytes:
        parts = list[bytes]()
        while True:
            message: Any = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(parts)
