"""Parameters of an operation, read from the handler's signature and its declared headers."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import ParameterKwarg, PathParameter, QueryParameter
from litestar.types import Empty
from litestar.typing import FieldDefinition

from tideq.api.openapi.components import Components
from tideq.api.operations import HeaderDoc
from tideq.api.schemas.times import InstantIn

PATHS = {
    "task_id": ("The task's id.", "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5"),
    "worker_id": ("The worker's id, as returned by its registration.", "resizer-3f9c51d2a7b8"),
}
"""Descriptions and examples of path parameters, the same in all paths."""


def parameters_of(handler: HTTPRouteHandler, headers: tuple[HeaderDoc, ...], components: Components) -> list[Any]:
    found = handler.parsed_fn_signature.parameters.values()
    declared = [_declared(field, components) for field in found if isinstance(field.kwarg_definition, DESCRIBED)]
    return declared + [_header(each) for each in headers]


def has_query(handler: HTTPRouteHandler) -> bool:
    return any(
        isinstance(field.kwarg_definition, QueryParameter) for field in handler.parsed_fn_signature.parameters.values()
    )


DESCRIBED = (PathParameter, QueryParameter)


def _declared(field: FieldDefinition, components: Components) -> dict[str, Any]:
    if isinstance(field.kwarg_definition, PathParameter):
        return _path(field.name)
    assert isinstance(field.kwarg_definition, QueryParameter)
    return _query(field, field.kwarg_definition, components)


def _path(name: str) -> dict[str, Any]:
    if name not in PATHS:
        raise TypeError(f"the path parameter {name} has no description; add one to PATHS in {__name__}")
    description, example = PATHS[name]
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema} | {
        "example": example
    }


def _query(field: FieldDefinition, query: ParameterKwarg, components: Components) -> dict[str, Any]:
    if not query.description:
        raise TypeError(f"the query parameter {field.name} has no description; add one to its QueryParameter")
    schema = components.of(_constrained(field, query)) | (query.schema_extra or {})
    is_required = field.default is Empty or field.default is ...
    if not is_required and field.default is not None:
        schema["default"] = msgspec.to_builtins(field.default)
    name = query.name or field.name
    return {"name": name, "in": "query", "required": is_required, "description": query.description, "schema": schema}


def _constrained(field: FieldDefinition, query: ParameterKwarg) -> Any:
    """The type with its limits and without `None`, which a query cannot express."""
    kinds = [inner.annotation for inner in field.inner_types if not inner.is_none_type] if field.is_optional else []
    kind: Any = kinds[0] if kinds else field.annotation
    if kind is datetime:
        return InstantIn
    limits = dict(_limits(query))
    return Annotated[kind, msgspec.Meta(**limits)] if limits else kind


def _limits(query: ParameterKwarg) -> Iterator[tuple[str, Any]]:
    for name in ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern"):
        value = getattr(query, name)
        if value is not None:
            yield name, value


def _header(header: HeaderDoc) -> dict[str, Any]:
    schema = {"type": "string", **header.schema}
    return {
        "name": header.name,
        "in": "header",
        "required": False,
        "description": header.description,
        "schema": schema,
        "example": header.example,
    }
