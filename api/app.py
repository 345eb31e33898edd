"""Assembles the application: routes, the middleware around each, error handling, and the hot path around all."""

import functools
from collections.abc import Iterator
from typing import Any

import msgspec
from litestar import Litestar, Request
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.middleware import DefineMiddleware
from litestar.types import ASGIApp

from tideq.api.dashboard import pages
from tideq.api.edge.auth import allowed_roles
from tideq.api.edge.middleware import RequestMiddleware
from tideq.api.edge.responses import JsonResponse
from tideq.api.hot_path import HotPath
from tideq.api.openapi import describe
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


def create_app(service: Service) -> ASGIApp:
    """The application as it is served."""
    app = litestar_app(service)
    return HotPath(app, service, routes(app)) if service.settings.hot_path == "on" else app


def litestar_app(service: Service) -> Litestar:
    """All routes, without the hot path."""

    async def provide_service() -> Service:
        return service

    @functools.cache
    def document() -> bytes:
        return msgspec.json.encode(describe(routes(app), service.settings.queue))

    async def provide_document() -> bytes:
        """Made at the first request, then cached."""
        return document()

    def refuse(request: Request[Any, Any, Any], error: Exception) -> JsonResponse:
        return service.error_responder.respond(request.scope, error)

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
        middleware=[DefineMiddleware(RequestMiddleware, service=service)],
        exception_handlers={HTTPException: refuse, Exception: refuse},
        request_max_body_size=service.settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    for handler in handlers(app):
        allowed_roles(handler)
    return app


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
