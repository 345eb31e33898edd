"""A refused parameter is named, whichever call it belongs to and whatever is wrong with it."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.api.bench import assert_problem

NEVER_MADE_ID = "0192f0c1-2b3c-7d4e-8f50-112233445566"
WRONG = {"integer": "x", "number": "x", "boolean": "perhaps"}
"""What no parameter of the type may be."""


@pytest.fixture
def has_history() -> bool:
    return True


async def parameters(http: httpx.AsyncClient) -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every parameter in an address's query."""
    document = (await http.get("/openapi.json")).json()
    return [
        (method, path, parameter)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    ]


async def test_a_wrong_parameter_is_named_by_every_call(http: httpx.AsyncClient) -> None:
    found = [each for each in await parameters(http) if is_bound(each[2]["schema"])]
    unnamed = list[str]()
    for method, path, parameter in found:
        name, query = parameter["name"], f"?{parameter['name']}={wrong(parameter['schema'])}"
        if (method, path) == ("delete", "/api/v1/tasks") and name != "older_than":
            query += "&older_than=7d"
        async with asyncio.timeout(10):
            answer = await http.request(method, path.replace("{task_id}", NEVER_MADE_ID) + query)
        if answer.status_code not in (400, 422) or not answer.json()["detail"].startswith(f"{name}: "):
            unnamed.append(f"{method} {path}{query}: {answer.status_code} {answer.text}")

    assert len(found) > 30
    assert unnamed == []


def is_bound(schema: dict[str, Any]) -> bool:
    """Whether not every text would do."""
    return any(
        set(each) & {"pattern", "enum", "format", "$ref", "minimum"} or each.get("type") in WRONG
        for each in kinds(schema)
    )


def kinds(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for part in (schema, schema.get("items", {})) for each in (part, *part.get("anyOf", ()))]


def wrong(schema: dict[str, Any]) -> str:
    return next((WRONG[each["type"]] for each in kinds(schema) if each.get("type") in WRONG), "%00")


async def test_a_parameter_that_is_missing_is_named(http: httpx.AsyncClient) -> None:
    found = await parameters(http)
    needed = [(method, path, parameter["name"]) for method, path, parameter in found if parameter.get("required")]
    assert ("delete", "/api/v1/tasks", "older_than") in needed

    for method, path, name in needed:
        problem = assert_problem(await http.request(method, path), 400, "bad-request")
        assert problem["detail"].startswith(f"{name}: "), problem
