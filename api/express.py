"""The calls made for every task, past what only the others need.

Litestar's routing, injection, guards and two response objects take 80 µs a request: half of a submission that shares
its store call with others. So routes declared as frequent are found here by their path, and their handlers called as
they are. A route has one declaration and one function, whichever way it is reached: whatever is not exactly such a call
(another method, a query, a trailing slash, an odd host) goes through Litestar, and a test compares the two ways.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from tideq.api.auth import Gate, require_own_worker, require_role
from tideq.api.calls import declared
from tideq.api.delivery import deliver
from tideq.api.service import Service

HOST = re.compile(rb"[0-9A-Za-z.\-]*(:[0-9]+)?")
IS_ANSWERED = "tideq.is_answered"

Middleware = Callable[[ASGIApp], ASGIApp]
Refuse = Callable[[Request[Any, Any, Any], Exception], Response[Any]]


class Frequent(NamedTuple):
    handler: HTTPRouteHandler
    path: str
    roles: frozenset[str]
    answer: Callable[..., Awaitable[Response[bytes]]]


class Express:
    """`around` are the middlewares Litestar has around every route, the outermost first."""

    def __init__(
        self,
        other: ASGIApp,
        service: Service,
        routes: Iterable[tuple[str, HTTPRouteHandler]],
        around: Iterable[Middleware],
        refuse: Refuse,
    ) -> None:
        self._other = other
        self._service = service
        self._gate: Gate = service.gate
        self._refuse = refuse
        found = [
            Frequent(handler, path, declared(handler).roles, handler.fn)
            for path, handler in routes
            if declared(handler).is_frequent
        ]
        self._plain = {route.path: route for route in found if "{" not in route.path}
        self._workers = {tuple(route.path.split("/{worker_id}/")): route for route in found if "{" in route.path}
        self._handle: ASGIApp = self._answer
        for middleware in reversed(list(around)):
            self._handle = middleware(self._handle)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context: Any = scope
        if context["method"] != "POST" or context["query_string"] or not self._finds(context):
            await self._other(scope, receive, send)
            return
        try:
            await self._handle(scope, receive, send)
        except Exception as error:
            # Whatever it is, as Litestar's own handlers take it; unless a part of an answer has been sent already.
            if IS_ANSWERED in context:
                raise
            await deliver(self._refuse(Request(scope, receive, send), error), receive, send)

    def _finds(self, scope: Any) -> bool:
        """Leaves the route in the scope, as Litestar does."""
        path, parameters = scope["path"], dict[str, str]()
        route = self._plain.get(path)
        if route is None:
            rest, _, verb = path.rpartition("/")
            head, _, worker_id = rest.rpartition("/")
            route, parameters = self._workers.get((head, verb)), {"worker_id": worker_id}
            if route is None or not worker_id:
                return False
        if not all(HOST.fullmatch(value) for name, value in scope["headers"] if name == b"host"):
            return False
        scope["route_handler"], scope["path_template"], scope["path_params"] = route.handler, route.path, parameters
        scope["tideq.route"] = route
        return True

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        context: Any = scope
        route: Frequent = context["tideq.route"]
        request: Request[Any, Any, Any] = Request(scope, receive, send)
        context["user"] = caller = await self._gate.caller(request.headers)
        context["auth"] = None
        require_role(caller, route.roles)
        if worker_id := context["path_params"].get("worker_id"):
            require_own_worker(caller, worker_id)
        answer = await route.answer(request=request, service=self._service, **context["path_params"])
        context[IS_ANSWERED] = True
        await deliver(answer, receive, send)
