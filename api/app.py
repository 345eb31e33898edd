"""The whole assembly on one screen."""

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

from tideq.api import problems
from tideq.api.auth import Gate, allowed_roles, check_role
from tideq.api.presence import CallerGone
from tideq.api.routes import events, health, queue, tasks, worker_protocol
from tideq.api.service import Service
from tideq.queue_core.errors import QueueError

PUBLIC_PATHS = ("^/livez$", "^/readyz$")

log = structlog.get_logger(__name__)


def create_app(service: Service) -> Litestar:
    async def provide_service() -> Service:
        return service

    app = Litestar(
        route_handlers=[tasks.router, worker_protocol.router, queue.router, events.router, health.router],
        dependencies={"service": Provide(provide_service)},
        middleware=[DefineMiddleware(Door, gate=service.gate, exclude=list(PUBLIC_PATHS))],
        guards=[check_role],
        exception_handlers={
            QueueError: problems.respond,
            problems.RequestError: problems.respond,
            HTTPException: problems.respond,
            CallerGone: _nobody_there,
            Exception: _unforeseen,
        },
        request_max_body_size=service.settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    for handler in handlers(app):
        allowed_roles(handler)
    return app


def handlers(app: Litestar) -> Iterator[HTTPRouteHandler]:
    """Every route of ours; Litestar adds its own for OPTIONS, which tell no more than the methods."""
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            if handler.http_methods != {"OPTIONS"}:
                yield handler


class Door(AbstractAuthenticationMiddleware):
    """Finds out who is asking; whether they may is the routes' business."""

    def __init__(self, app: ASGIApp, gate: Gate, exclude: list[str]) -> None:
        super().__init__(app, exclude=exclude)
        self._gate = gate

    async def authenticate_request(self, connection: ASGIConnection[Any, Any, Any, Any]) -> AuthenticationResult:
        caller = await self._gate.caller(connection.headers.get("authorization", ""))
        return AuthenticationResult(user=caller, auth=None)


def _nobody_there(_request: Request[Any, Any, Any], _error: Exception) -> Response[bytes]:
    """The status is for the books only: the caller has gone."""
    return Response(b"", status_code=499)


def _unforeseen(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log.error("unforeseen", path=request.url.path, exc_info=error)
    return problems.respond(request, error)
