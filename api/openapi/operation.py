"""One route as an OpenAPI operation."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from litestar.exceptions import ValidationException
from litestar.handlers import HTTPRouteHandler

from tideq.api.edge import problems
from tideq.api.openapi.components import Components
from tideq.api.openapi.error_responses import BodyTooLarge, responses
from tideq.api.openapi.examples import example_of
from tideq.api.openapi.parameters import has_query, parameters_of
from tideq.api.operations import JSON, PUBLIC, HeaderDoc, Link, Operation, operation_of_handler
from tideq.queue_core import errors

SECURITY = "key"


def operation_of(handler: HTTPRouteHandler, components: Components) -> dict[str, Any]:
    call = operation_of_handler(handler)
    summary, description = in_words(handler.fn.__doc__)
    operation: dict[str, Any] = {
        "operationId": f"{tag_of(handler)}_{handler.fn.__name__}",
        "tags": [tag_of(handler)],
        "summary": summary,
        "description": " ".join(part for part in (description, _roles_sentence(call)) if part),
        "security": [] if PUBLIC in call.roles else [{SECURITY: []}],
        "parameters": parameters_of(handler, call.headers, components),
        "responses": {
            str(handler.status_code): _success(call, summary, components),
            **responses(_refusals(handler, call)),
        },
    }
    return operation | ({"requestBody": _body(call, components)} if call.body else {})


def tag_of(handler: HTTPRouteHandler) -> str:
    return handler.fn.__module__.rpartition(".")[2]


def in_words(docstring: str | None) -> tuple[str, str]:
    """The first sentence, and the rest on one line, as summary and description."""
    text = " ".join(inspect.cleandoc(docstring or "").split())
    first, _, rest = text.partition(". ")
    return first.rstrip("."), rest


def _roles_sentence(call: Operation) -> str:
    return "" if PUBLIC in call.roles else f"Requires a key with the role {' or '.join(sorted(call.roles))}."


def _refusals(handler: HTTPRouteHandler, call: Operation) -> Iterator[type[Exception]]:
    """The declared errors, and those of any route with a body, a query, a guard or a use of the store."""
    yield from call.refusals
    is_closed = PUBLIC not in call.roles
    if is_closed:
        yield from (problems.Unauthorized, problems.Forbidden)
    yield problems.BadRequest
    if call.body:
        yield from (BodyTooLarge, problems.UnprocessableContent)
    if has_query(handler):
        yield ValidationException
    if is_closed or "service" in handler.parsed_fn_signature.parameters:
        yield from (errors.StoreUnavailable, errors.StoreReplaced)


def _body(call: Operation, components: Components) -> dict[str, Any]:
    schema = components.of(call.body)
    made = call.examples or {"typical": example_of(schema, components)}
    content = {"schema": schema, "examples": {name: {"value": value} for name, value in made.items()}}
    return {"required": call.needs_body, "content": {JSON: content}}


def _success(call: Operation, summary: str, components: Components) -> dict[str, Any]:
    schemas = [components.of(kind) for kind in call.answer if kind is not None]
    headers = {each.name: _header(each) for each in call.answer_headers}
    links = {link.operation: _link(link) for link in call.links}
    return {
        "description": _answer_description(call, schemas, components) or summary + ".",
        **({"headers": headers} if headers else {}),
        "content": {call.media_type: _content(call, schemas, components)},
        **({"links": links} if links else {}),
    }


def _answer_description(call: Operation, schemas: list[dict[str, Any]], components: Components) -> str:
    described = [str(components.resolve(schema).get("description", "")) for schema in schemas]
    return " Or: ".join(described) if call.media_type == JSON else ""


def _content(call: Operation, schemas: list[dict[str, Any]], components: Components) -> dict[str, Any]:
    if call.media_type == JSON and schemas:
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        return {"schema": schema, "examples": _answers(schemas, components)}
    if call.media_type == "text/event-stream":
        return _stream(call, components)
    return {"schema": {"type": "object" if call.media_type == JSON else "string"}}


def _answers(schemas: list[dict[str, Any]], components: Components) -> dict[str, Any]:
    return {_named(schema): {"value": example_of(schema, components)} for schema in schemas}


def _named(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "typical")).rpartition("/")[2].removesuffix("Out").lower()


def _stream(call: Operation, components: Components) -> dict[str, Any]:
    """OpenAPI 3.1 cannot describe streams: the schema is that of one event."""
    fields = {
        "id": {"type": "string", "description": "Send it as `Last-Event-ID` to resume after this event."},
        "event": {"enum": [kind.event_name for kind in call.answer], "description": "The kind of event."},
        "data": {
            "type": "string",
            "description": "JSON on one line.",
            "contentMediaType": JSON,
            "contentSchema": components.of(call.answer),
        },
    }
    schema = {"type": "object", "description": "One event.", "properties": fields, "required": ["data"]}
    return {"schema": schema, "examples": {kind.event_name: _event(kind, components) for kind in call.answer}}


def _event(kind: Any, components: Components) -> dict[str, Any]:
    data = msgspec.json.encode(example_of(components.of(kind), components)).decode()
    return {"value": {"id": "1772442900250-0-1", "event": kind.event_name, "data": data}}


def _header(header: HeaderDoc) -> dict[str, Any]:
    return {"description": header.description, "schema": {"type": "string"}, "example": header.example}


def _link(link: Link) -> dict[str, Any]:
    body = {"requestBody": {name: _expression(value) for name, value in link.body.items()}} if link.body else {}
    parameters = {name: _expression(value) for name, value in link.parameters.items()}
    return {"operationId": link.operation, "parameters": parameters, **body}


def _expression(value: str) -> str:
    return f"$response.body#{value}" if value.startswith("/") else value
