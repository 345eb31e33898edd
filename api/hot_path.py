"""The calls made for every task, past what only the others need.

Litestar's routing, injection, guards and two response objects take 80 µs a request: more than all the rest of a
submission that shares its store call with others. So routes declared as frequent are found here by their path, and
their handlers called as they are. A route has one declaration and one function, whichever way it is reached. Whatever
is not exactly such a call (another method, a query, a trailing slash, an odd host, a body of unknown length or too
large) goes through Litestar, and a test compares the two ways.
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
from tideq.api.metrics.request_metrics import GONE, StartTimer, outcome_of
from tideq.api.operations import operation_of_handler
from tideq.api.service import Service

HOST = re.compile(rb"[0-9A-Za-z.\-]*(:[0-9]+)?")

RawHeaders = list[tuple[bytes, bytes]]
Refuse = Callable[[Request[Any, Any, Any], Exception], Response[Any]]


class ResponseWriter(Protocol):
    """A request's way in and its answer's way out."""

    has_begun: bool
    """To be answered."""

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
    """A frequent call, and what its head says."""

    route: HotRoute
    headers: dict[bytes, bytes]
    parameters: dict[str, str]


class HotPath:
    """`begin` notes a request, and `refuse` makes an answer of an error, as they do for all others."""

    def __init__(
        self,
        other: ASGIApp,
        service: Service,
        routes: Iterable[tuple[str, HTTPRouteHandler]],
        begin: StartTimer,
        refuse: Refuse,
    ) -> None:
        self._other = other
        self._service = service
        self._gate: Authenticator = service.authenticator
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
            if operation_of_handler(handler).is_frequent
        ]
        self._plain = {route.path: route for route in found if "{" not in route.path}
        self._workers = {tuple(route.path.split("/{worker_id}/")): route for route in found if "{" in route.path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI server calls it."""
        if found := self.find(scope):
            await self.answer(scope, found, ByMessages(receive, send))
        else:
            await self._other(scope, receive, send)

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

    async def answer(self, scope: Any, found: Match, carrier: ResponseWriter) -> None:
        route, headers, parameters = found
        # As Litestar leaves them there.
        scope["route_handler"], scope["path_template"], scope["path_params"] = route.handler, route.path, parameters
        note, status, failure = self._begin(scope), GONE, None
        try:
            answer = await self._answer(found, HotRequest(scope, headers, carrier))
            status = answer.status_code or 200
            if isinstance(answer, ClaimResponse):
                await answer.send(carrier.receive, carrier.send)
            else:
                await carrier.respond(status, response_headers(answer), answer.content)
        except Exception as error:
            # Whatever it is, as Litestar's own handlers take it; unless a part of an answer has been sent already.
            status, failure = outcome_of(error)
            if carrier.has_begun:
                raise
            refusal = self._refuse(Request(scope, carrier.receive, carrier.send), error)
            await carrier.respond(status, response_headers(refusal), refusal.content)
        finally:
            note.end(status, failure)

    async def _answer(self, found: Match, request: HotRequest) -> Response[bytes]:
        route, _, parameters = found
        request.user = caller = await self._gate.caller(request.headers)
        require_role(caller, route.roles)
        if parameters:
            require_own_worker(caller, parameters["worker_id"])
        return await route.answer(request=request, service=self._service, **parameters)


class ByMessages:
    """Over any ASGI server."""

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
