"""What answers say to browsers and to callers who sent nonsense. Derived from the routes."""

import httpx
import pytest

from tests.api.bench import assert_problem
from tests.api.test_roles import ROUTES
from tideq.api.edge.responses import SAFE
from tideq.api.operations import PUBLIC

TASK_ID = "0192f0c1-2b3c-7d4e-8f50-112233445566"
CLOSED = sorted({(method, path) for method, path, roles in ROUTES if PUBLIC not in roles and path != "/api/v1/events"})
WRONG = ("/api/v1/tasks?limit=many", "/api/v1/dlq?limit=many", "/api/v1/events?status=asleep", "/api/v1/tasks?count=x")


@pytest.mark.parametrize(("method", "path"), CLOSED, ids=[f"{method} {path}" for method, path in CLOSED])
async def test_every_answer_is_for_nobody_elses_eyes(http: httpx.AsyncClient, method: str, path: str) -> None:
    """Refusals too: what is wrong with a request tells what was in it."""
    answer = await http.request(method, path.format(task_id=TASK_ID, worker_id="w1"))

    assert {name: answer.headers.get(name) for name in SAFE} == SAFE
    assert len(answer.headers.get_list("cache-control")) == 1
    assert "set-cookie" not in answer.headers


async def test_what_is_refused_before_any_route_has_them_too(http: httpx.AsyncClient) -> None:
    answer = await http.get("/api/v1/nothing/here")

    assert_problem(answer, 404, "not-found")
    assert {name: answer.headers.get(name) for name in SAFE} == SAFE


@pytest.mark.parametrize("path", ["/", "/ui/tasks", "/docs"])
async def test_pages_are_framed_by_nobody_and_tell_nobody_where_one_came_from(
    http: httpx.AsyncClient, path: str
) -> None:
    headers = (await http.get(path)).headers

    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


@pytest.mark.parametrize("path", WRONG)
async def test_a_wrong_value_in_the_address_is_a_bad_request_that_names_it(http: httpx.AsyncClient, path: str) -> None:
    name, _, value = path.partition("?")[2].partition("=")

    document = assert_problem(await http.get(path), 400, "bad-request")

    assert document["detail"].startswith(f"{name}: ")
    assert "http://" not in document["detail"], f"the whole address, {value} included, is nobody's business"


async def test_a_method_that_is_not_there_is_said_so(http: httpx.AsyncClient) -> None:
    assert_problem(await http.put("/api/v1/queue/stats"), 405, "method-not-allowed")
    assert_problem(await http.post("/api/v1/tasks", content=b" " * 2**20), 413, "body-too-large")
