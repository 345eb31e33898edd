"""The OpenAPI document. It contains no secrets and needs no key."""

import sys
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from litestar.handlers import HTTPRouteHandler

from tideq.api.openapi.components import Components
from tideq.api.openapi.error_responses import examples, problem_schemas
from tideq.api.openapi.operation import SECURITY, in_words, operation_of, tag_of
from tideq.queue_core.settings import QueueSettings

Routes = Iterable[tuple[str, HTTPRouteHandler]]
"""Paths and their handlers."""

INTRODUCTION = """TideQ accepts tasks over HTTP, hands them to workers over HTTP, and loses none.

Requests and responses are JSON in UTF-8, at most 32 levels deep, without NUL characters. Times are RFC 3339 in UTC,
durations are seconds. Unknown fields in a request are refused. Errors are problem documents (RFC 9457) with a stable
`type`. Fields may be added to responses, never renamed."""


def describe(routes: Routes, settings: QueueSettings) -> dict[str, Any]:
    found, components = list(routes), Components(settings)
    paths: dict[str, dict[str, Any]] = {}
    for path, handler in found:
        for method in sorted(handler.http_methods):
            paths.setdefault(path, {})[method.lower()] = operation_of(handler, components)
    problem_schemas(components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "TideQ", "version": version("tideq"), "description": INTRODUCTION},
        "servers": [{"url": "/"}],
        "tags": _tags(handler for _, handler in found),
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.schemas.items())),
            "examples": examples(),
            "securitySchemes": {SECURITY: _key_scheme()},
        },
    }


def _tags(handlers: Iterable[HTTPRouteHandler]) -> list[dict[str, str]]:
    """A tag per module, described by its docstring."""
    modules = {tag_of(handler): handler.fn.__module__ for handler in handlers}
    return [{"name": tag, "description": in_words(sys.modules[name].__doc__)[0]} for tag, name in modules.items()]


def _key_scheme() -> dict[str, str]:
    description = "A key created with `tideq keys create NAME --role ROLE`."
    return {"type": "http", "scheme": "bearer", "bearerFormat": "tq_…", "description": description}
