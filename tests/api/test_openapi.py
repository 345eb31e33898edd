"""The OpenAPI document: nothing is missing, nothing in it is untrue."""

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import httpx
import msgspec
import pytest
from jsonschema import Draft202012Validator
from litestar import get
from litestar.params import QueryParameter
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.api.bench import Bench
from tests.api.running import environ, tideq
from tests.stores import StoreUnderTest
from tideq.api import app as app_module
from tideq.api.app import litestar_app, routes
from tideq.api.edge import problems
from tideq.api.openapi import describe
from tideq.api.openapi.error_responses import SHOWN
from tideq.api.operations import PUBLIC, operation, operation_of_handler
from tideq.api.schemas.base import ResponseSchema
from tideq.api.schemas.queue import HealthOut
from tideq.api.service import offline_service
from tideq.queue_core.settings import DEFAULT_PRIORITIES, Leases, QueueSettings
from tideq.queue_core.validation import NAME

Json = dict[str, Any]


class Operation(NamedTuple):
    method: str
    path: str
    told: Json


def _document(settings: QueueSettings | None = None) -> Json:
    """As a reader of JSON has it; an app needs no store to be described."""
    app = litestar_app(offline_service())
    return msgspec.json.decode(msgspec.json.encode(describe(routes(app), settings or QueueSettings())))


DOCUMENT = _document()
OPERATIONS = [
    Operation(method, path, told) for path, methods in DOCUMENT["paths"].items() for method, told in methods.items()
]
BODIES = {
    f"{method} {path}".lower(): operation_of_handler(handler).body
    for path, handler in routes(litestar_app(offline_service()))
    for method in handler.http_methods
}
each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=[each.told["operationId"] for each in OPERATIONS])


def _request_examples() -> Iterator[tuple[str, Any]]:
    for method, path, told in OPERATIONS:
        content = told.get("requestBody", {}).get("content", {}).get("application/json", {})
        for example in content.get("examples", {}).values():
            yield f"{method} {path}", example["value"]


def _answer_examples() -> Iterator[tuple[str, Json, Any]]:
    """Where, the schema and the value; references to named examples followed."""
    for method, path, told in OPERATIONS:
        for status, response in told["responses"].items():
            for media_type, content in response["content"].items():
                for name, example in content.get("examples", {}).items():
                    found = DOCUMENT["components"]["examples"][name] if "$ref" in example else example
                    yield f"{method} {path} {status} {media_type} {name}", content["schema"], found["value"]


def _faults(schema: Json, value: Any) -> list[str]:
    """What a value has against a schema, whose references lead into the document's components."""
    validator: Any = Draft202012Validator({**schema, "components": DOCUMENT["components"]})
    return [error.message for error in validator.iter_errors(value)]


def test_the_document_is_valid_openapi_3_1() -> None:
    assert DOCUMENT["openapi"].startswith("3.1")
    assert [error.message for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    app = litestar_app(offline_service())
    served = {(method.lower(), path) for path, handler in routes(app) for method in handler.http_methods}

    assert {(method, path) for method, path, _ in OPERATIONS} == served
    assert len(served) >= 25


def test_operation_ids_are_unique_and_links_lead_to_them() -> None:
    ids = [told["operationId"] for _, _, told in OPERATIONS]
    linked = {
        link["operationId"]
        for _, _, told in OPERATIONS
        for response in told["responses"].values()
        for link in response.get("links", {}).values()
    }

    assert len(set(ids)) == len(ids)
    assert linked <= set(ids)
    assert {"tasks_read", "tasks_wait", "tasks_cancel", "tasks_explain", "worker_protocol_poll"} <= linked


@each_operation
def test_a_call_says_what_it_does_what_it_takes_and_what_it_answers(operation: Operation) -> None:
    _, path, told = operation
    in_path = {each["name"] for each in told["parameters"] if each["in"] == "path"}

    assert told["summary"]
    assert told["tags"][0] in [tag["name"] for tag in DOCUMENT["tags"] if tag["description"]]
    assert in_path == set(re.findall(r"{(\w+)}", path))
    assert all(each["description"] and each["schema"] for each in told["parameters"])
    assert all(each["description"] and each["content"] for each in told["responses"].values())


@each_operation
def test_a_closed_call_names_its_key_and_its_refusals(operation: Operation) -> None:
    responses, is_closed = operation.told["responses"], bool(operation.told["security"])

    assert is_closed == ("401" in responses) == ("403" in responses)
    assert is_closed == (operation.path.startswith(("/api/", "/internal/", "/metrics")))
    for status in {"429", "503"} & set(responses):
        assert "Retry-After" in responses[status]["headers"]
    for status in (each for each in responses if each >= "400"):
        assert set(responses[status]["content"]) == {problems.MEDIA_TYPE}


@each_operation
def test_every_body_has_an_example(operation: Operation) -> None:
    body = operation.told.get("requestBody")

    assert body is None or body["content"]["application/json"]["examples"]
    assert (body is None) == (BODIES[f"{operation.method} {operation.path}"] is None)


@pytest.mark.parametrize(("call_name", "example"), list(_request_examples()))
def test_an_example_of_a_body_is_one_that_its_struct_and_its_schema_take(call_name: str, example: Any) -> None:
    method, path = call_name.split()
    schema = DOCUMENT["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]

    msgspec.json.decode(json.dumps(example), type=BODIES[call_name])
    assert _faults(schema, example) == []


@pytest.mark.parametrize(("place", "schema", "value"), list(_answer_examples()))
def test_an_example_of_an_answer_is_as_its_schema_says(place: str, schema: Json, value: Any) -> None:
    assert _faults(schema, value) == []


@each_operation
def test_every_json_answer_has_an_example(operation: Operation) -> None:
    contents = [each["content"] for each in operation.told["responses"].values()]

    for content in (each["application/json"] for each in contents if "application/json" in each):
        assert content.get("examples") or operation.path == "/openapi.json"


def test_every_field_is_described() -> None:
    silent = [
        f"{name}.{field}"
        for name, schema in DOCUMENT["components"]["schemas"].items()
        for field, told in schema.get("properties", {}).items()
        if "description" not in json.dumps(told) and "$ref" not in json.dumps(told)
    ]

    assert silent == []


def test_every_error_has_a_status_and_an_example() -> None:
    shown = {type(error) for error in SHOWN}

    assert set(problems.STATUSES) - shown <= {problems.errors.InvalidRequest}
    assert all(problems.problem_of(error)[0].status < 600 for error in SHOWN)


def test_every_field_of_an_answer_is_promised_and_a_request_takes_no_other() -> None:
    made = DOCUMENT["components"]["schemas"]

    assert set(made["TaskOut"]["required"]) == set(made["TaskOut"]["properties"])
    assert set(made["OutcomeOut"]["required"]) == {"task_id", "ok"}
    assert made["SubmitIn"]["additionalProperties"] is False
    assert made["SubmitIn"]["required"] == ["task_type"]


def test_names_and_numbers_in_the_document_are_the_domains_own() -> None:
    submit = DOCUMENT["components"]["schemas"]["SubmitIn"]["properties"]

    assert submit["task_type"]["pattern"] == f"^{NAME.pattern}$"
    assert submit["parameters"]["type"] == "object"
    assert submit["priority"]["anyOf"][0]["enum"] == sorted(DEFAULT_PRIORITIES)


def test_what_is_configured_is_what_the_document_says() -> None:
    levels = {"urgent": DEFAULT_PRIORITIES["high"]}
    made = _document(QueueSettings(priorities=levels, leases=Leases(max_execution_ms=60_000)))
    submit = made["components"]["schemas"]["SubmitIn"]["properties"]

    assert submit["priority"]["anyOf"][0]["enum"] == ["urgent"]
    assert submit["timeout_seconds"]["anyOf"][0]["maximum"] == 60


def test_the_rules_between_fields_are_told() -> None:
    submit, result = ({"$ref": f"#/components/schemas/{name}"} for name in ("SubmitIn", "ResultIn"))
    both = {"task_type": "resize", "run_at": "2030-01-01T00:00:00Z", "delay_seconds": 1}
    failed = {"task_id": "t", "lease": "l", "status": "failed"}

    assert _faults(submit, both)
    assert _faults(submit, {**both, "delay_seconds": None}) == []
    assert _faults(result, failed)
    assert _faults(result, {**failed, "error": {"message": "no"}}) == []


def test_a_route_that_keeps_silent_about_a_parameter_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    @get("/quiet", opt=operation(PUBLIC, answer=HealthOut), sync_to_thread=False)
    def quiet(limit: Annotated[int, QueryParameter(name="limit")] = 1) -> str:
        return str(limit)

    monkeypatch.setattr(app_module.health, "router", quiet)

    with pytest.raises(TypeError, match="query parameter limit has no description"):
        _document()


def test_an_answer_without_examples_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute(ResponseSchema, kw_only=True):
        word: str

    @get("/mute", opt=operation(PUBLIC, answer=Mute), sync_to_thread=False)
    def mute() -> str:
        return ""

    monkeypatch.setattr(app_module.health, "router", mute)

    with pytest.raises(TypeError, match="Mute/word has no example"):
        _document()


async def test_the_document_is_served_to_whoever_asks(http: httpx.AsyncClient) -> None:
    answer = await http.get("/openapi.json")

    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == DOCUMENT


def test_the_command_prints_the_same_document(store: StoreUnderTest, queue_name: str) -> None:
    ended = tideq(environ(store.url, queue_name), "openapi")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == DOCUMENT


async def test_an_answer_of_the_service_is_as_the_document_says(bench: Bench) -> None:
    """A few by hand; the fuzzing suite does it for all."""
    task_id = await bench.submit("resize", priority="high", tags={"a": "b"})
    made = DOCUMENT["components"]["schemas"]

    assert _faults(made["TaskOut"], await bench.read(task_id)) == []
    assert _faults(made["StatsOut"], await bench.call("GET", "/api/v1/queue/stats")) == []
    assert _faults(made["ExplanationOut"], await bench.call("GET", f"/api/v1/tasks/{task_id}/explain")) == []
