"""Around every route: checks the caller's key, its role and the query, times the request and adds the safe headers.

One middleware for both ways to a route, the framework's and the hot path's. Checks are no guards of Litestar, because
two of them took 14 µs a request, and each further middleware takes 1.7.
"""

import difflib
import functools
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp, Message, Receive, Send

from tideq.api.edge.auth import require_own_worker, require_role
from tideq.api.edge.problems import CLIENT_CLOSED, BadRequest
from tideq.api.edge.responses import RawHeaders, body_message, with_safe_headers
from tideq.api.operations import PUBLIC, operation_of_handler
from tideq.api.service import Service

HEADERS = "tideq.headers"
"""Key of the headers that were looked up before in the ASGI scope."""


class RequestMiddleware:
    """`app` is what follows after routing: the scope has the handler, its path template and the path's parameters."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        timer, status = self._service.start_timer(scope), CLIENT_CLOSED

        def send_safely(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = with_safe_headers(message["headers"])
            return send(message)

        sending: Any = send_safely  # messages of every kind
        try:
            if scope["method"] == "OPTIONS" and isinstance(scope["route_handler"], HTTPRouteHandler):
                return await _send_methods(scope, sending)
            try:
                await self._check(scope)
            except Exception as error:
                # Any error, as in Litestar's exception handlers.
                return await self._service.error_responder.respond(scope, error).send(sending)
            await self._app(scope, receive, sending)
        finally:
            timer.end(status)

    async def _check(self, scope: Any) -> None:
        handler = scope["route_handler"]
        roles = operation_of_handler(handler).roles
        if PUBLIC not in roles:
            headers = scope.get(HEADERS) or Headers(scope["headers"])
            scope["user"] = caller = await self._service.authenticator.caller(headers)
            require_role(caller, roles)
            if "worker" in roles and (worker_id := scope["path_params"].get("worker_id")) is not None:
                require_own_worker(caller, worker_id)
        if scope["query_string"] and isinstance(handler, HTTPRouteHandler):
            check_query(ASGIConnection[Any, Any, Any, Any](scope).query_params, query_names(handler))


class Headers(Mapping[str, str]):
    """By their names in lower case; of a repeated header the first."""

    def __init__(self, raw: RawHeaders) -> None:
        self.raw = dict(reversed(raw))

    def get(self, name: str, default: Any = None) -> Any:
        """Overridden because `Mapping.get` takes three times as long."""
        value = self.raw.get(name.encode())
        return default if value is None else value.decode("latin-1")

    def __getitem__(self, name: str) -> str:
        return self.raw[name.encode()].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self.raw)

    def __len__(self) -> int:
        return len(self.raw)


def check_query(names: Iterable[str], declared: frozenset[str]) -> None:
    """Unknown query parameters are an error: a typo must not silently widen a list or a clean-up."""
    for name in names:
        if name not in declared:
            close = difflib.get_close_matches(name, declared, n=1)
            raise BadRequest(
                f"{name!r} is not a parameter of this call" + (f"; did you mean {close[0]!r}?" if close else "")
            )


@functools.cache
def query_names(handler: HTTPRouteHandler) -> frozenset[str]:
    fields = handler.parsed_fn_signature.parameters.values()
    return frozenset(
        field.kwarg_definition.name or field.name
        for field in fields
        if isinstance(field.kwarg_definition, QueryParameter)
    )


async def _send_methods(scope: Any, send: Any) -> None:
    """Answers OPTIONS, because Litestar leaves out methods that were added to a path later."""
    routes = (route for route in scope["litestar_app"].routes if isinstance(route, HTTPRoute))
    methods = {method for route in routes if route.path_format == scope["path_template"] for method in route.methods}
    headers = [(b"allow", ", ".join(sorted(methods)).encode())]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send(body_message(b"", more=False))
