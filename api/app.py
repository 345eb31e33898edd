"""The whole assembly on one screen."""

import functools
from collections.abc import Iterator
from typing import Any

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
from tideq.api.openapi.documentation import Documentation
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

PUBLIC_PATHS = ("^/livez$", "^/readyz$", r"^/openapi\.json$", r"^/docs(/page\.(js|css))?$", "^/$", "^/ui(/|$)")

TELL_AGAIN_SECONDS = 60.0
"""A missing permission is logged as often for each reason, however many requests meet it."""

log = structlog.get_logger(__name__)


def create_app(service: Service) -> Litestar:
    refused = LogOnce(TELL_AGAIN_SECONDS)

    async def provide_service() -> Service:
        return service

    def refuse(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        match error:
            case StoreRefused() | HistoryRefused():
                service.meters.note_refusal(error)
                if refused.is_new(f"{error.code} {error}"):
                    log.error("request refused by the store or by history", path=request.url.path, exc_info=error)
            case QueueError() | problems.RequestError():
                service.meters.note_refusal(error)
            case ClientDisconnected():
                # The status is for the books only.
                return Response(b"", status_code=499)
            case HTTPException():
                pass
            case _:
                log.error("unforeseen", path=request.url.path, exc_info=error)
        return problems.respond(request, error)

    async def provide_documentation() -> Documentation:
        return described

    begin: StartTimer = functools.partial(RequestTimer, service.meters)
    if service.tracing is not None:
        begin = RequestTracer(service.tracing, service.meters).begin
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
        dependencies={"service": Provide(provide_service), "documentation": Provide(provide_documentation)},
        middleware=[*around, DefineMiddleware(AuthMiddleware, gate=service.authenticator, exclude=list(PUBLIC_PATHS))],
        guards=[check_role, check_query],
        exception_handlers={OptionsRequest: _options_of, HTTPException: refuse, Exception: refuse},
        request_max_body_size=service.settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    for handler in handlers(app):
        allowed_roles(handler)
    app.asgi_handler = HotPath(app.asgi_handler, service, routes(app), begin, refuse)
    described = Documentation(lambda: routes(app), service.settings.queue)
    return app


def hot_path_of(app: Any) -> HotPath | None:
    """The short way for frequent calls, where the application has one."""
    handler = getattr(app, "asgi_handler", None)
    return handler if isinstance(handler, HotPath) else None


def handlers(app: Litestar) -> Iterator[HTTPRouteHandler]:
    for _, handler in routes(app):
        yield handler


def routes(app: Litestar) -> Iterator[tuple[str, HTTPRouteHandler]]:
    """Every path of ours and what answers there; Litestar adds its own for OPTIONS, which tell only the methods."""
    for route in app.routes:
        # Litestar keeps those of one path in a set: without sorting, every start would tell them in another order.
        for handler in sorted(getattr(route, "route_handlers", ()), key=_methods, reverse=True):
            if handler.http_methods != {"OPTIONS"}:
                yield route.path_format, handler


def _methods(handler: HTTPRouteHandler) -> list[str]:
    return sorted(handler.http_methods)


class AuthMiddleware(AbstractAuthenticationMiddleware):
    """Finds out who is asking; whether they may is the routes' business."""

    def __init__(self, app: ASGIApp, gate: Authenticator, exclude: list[str]) -> None:
        super().__init__(app, exclude=exclude)
        self._gate = gate

    async def authenticate_request(self, connection: ASGIConnection[Any, Any, Any, Any]) -> AuthenticationResult:
        return AuthenticationResult(user=await self._gate.caller(connection.headers), auth=None)


def _options_of(_request: Request[Any, Any, Any], asked: OptionsRequest) -> Response[None]:
    return Response(None, status_code=204, headers={"Allow": ", ".join(asked.methods)})
