"""Assembles the Litestar application: routes, middleware, guards, error handling."""

import functools
from collections.abc import Iterator
from typing import Any

import msgspec
import structlog
from litestar import Litestar, Request, Response
from litestar.connection import ASGIConnection
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult, DefineMiddleware
from litestar.types import ASGIApp

from tideq.api.dashboard import pages
from tideq.api.edge import problems
from tideq.api.edge.auth import Authenticator, OptionsRequest, allowed_roles, check_role
from tideq.api.edge.disconnect import ClientDisconnected
from tideq.api.edge.query_check import check_query
from tideq.api.edge.safe_headers import SafeHeaders
from tideq.api.hot_path import HotPath
from tideq.api.metrics.request_metrics import MetricsMiddleware, RequestTimer, StartTimer
from tideq.api.openapi import describe
from tideq.api.request_spans import RequestTracer
from tideq.api.routes import (
    audit,
    dlq,
    documentation,
    events,
    health,
    metrics,
    queue,
    queue_picture,
    session,
    tasks,
    worker_protocol,
    workers,
)
from tideq.api.service import Service
from tideq.queue_core.errors import HistoryRefused, QueueError, StoreRefused
from tideq.queue_core.log_once import LogOnce

PUBLIC_PATHS = ("^/livez$", "^/readyz$", r"^/openapi\.json$", "^/docs$", "^/$", "^/ui(/|$)")

LOG_AGAIN_SECONDS = 60.0
"""A refusal by the store or by history is logged at most this often for each reason."""

log = structlog.get_logger(__name__)


def create_app(service: Service) -> Litestar:
    logged = LogOnce(LOG_AGAIN_SECONDS)

    async def provide_service() -> Service:
        return service

    def refuse(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        match error:
            case StoreRefused() | HistoryRefused():
                service.metrics.note_refusal(error)
                if logged.is_new(f"{error.code} {error}"):
                    log.error("request refused by the store or by history", path=request.url.path, exc_info=error)
            case QueueError() | problems.RequestError():
                service.metrics.note_refusal(error)
            case ClientDisconnected():
                # For the metrics only: no client reads it.
                return Response(b"", status_code=499)
            case HTTPException():
                pass
            case _:
                log.error("request failed", path=request.url.path, exc_info=error)
        return problems.respond(request, error)

    @functools.cache
    def document() -> bytes:
        return msgspec.json.encode(describe(routes(app), service.settings.queue))

    async def provide_document() -> bytes:
        """Made at the first request, then cached."""
        return document()

    begin: StartTimer = functools.partial(RequestTimer, service.metrics)
    if service.tracing is not None:
        begin = RequestTracer(service.tracing, service.metrics).begin
    around: list[Any] = [SafeHeaders, DefineMiddleware(MetricsMiddleware, begin=begin)]
    app = Litestar(
        route_handlers=[
            tasks.router,
            dlq.router,
            worker_protocol.router,
            workers.router,
            queue.router,
            queue_picture.router,
            audit.router,
            session.router,
            events.router,
            health.router,
            metrics.router,
            documentation.router,
            *pages.handlers(pages.Pages()),
        ],
        dependencies={"service": Provide(provide_service), "document": Provide(provide_document)},
        middleware=[
            *around,
            DefineMiddleware(AuthMiddleware, authenticator=service.authenticator, exclude=list(PUBLIC_PATHS)),
        ],
        guards=[check_role, check_query],
        exception_handlers={OptionsRequest: _options_of, HTTPException: refuse, Exception: refuse},
        request_max_body_size=service.settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    for handler in handlers(app):
        allowed_roles(handler)
    app.asgi_handler = HotPath(app.asgi_handler, service, routes(app), begin, refuse)
    return app


def hot_path_of(app: Any) -> HotPath | None:
    handler = getattr(app, "asgi_handler", None)
    return handler if isinstance(handler, HotPath) else None


def handlers(app: Litestar) -> Iterator[HTTPRouteHandler]:
    for _, handler in routes(app):
        yield handler


def routes(app: Litestar) -> Iterator[tuple[str, HTTPRouteHandler]]:
    """Every path of ours with its handlers, without the OPTIONS handlers that Litestar adds."""
    for route in app.routes:
        # Litestar keeps the handlers of a path in a set: sorting makes the OpenAPI document stable between starts.
        for handler in sorted(getattr(route, "route_handlers", ()), key=_methods, reverse=True):
            if handler.http_methods != {"OPTIONS"}:
                yield route.path_format, handler


def _methods(handler: HTTPRouteHandler) -> list[str]:
    return sorted(handler.http_methods)


class AuthMiddleware(AbstractAuthenticationMiddleware):
    """Finds the caller by its key. `check_role` decides what the caller may do."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, exclude: list[str]) -> None:
        super().__init__(app, exclude=exclude)
        self._authenticator = authenticator

    async def authenticate_request(self, connection: ASGIConnection[Any, Any, Any, Any]) -> AuthenticationResult:
        return AuthenticationResult(user=await self._authenticator.caller(connection.headers), auth=None)


def _options_of(_request: Request[Any, Any, Any], options: OptionsRequest) -> Response[None]:
    return Response(None, status_code=204, headers={"Allow": ", ".join(options.methods)})
