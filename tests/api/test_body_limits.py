"""How large a request may be: about one task's worth, except for those that speak of many. Derived from the routes."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.api.bench import assert_problem
from tests.kit import Kit
from tideq.api.app import litestar_app, routes
from tideq.api.operations import operation_of_handler
from tideq.api.service import offline_service
from tideq.api.settings import BODY_OVERHEAD_BYTES, MAX_BULK_BODY_BYTES
from tideq.queue_core.settings import Admission, QueueSettings

BULK = ("/api/v1/tasks/batch", "/internal/workers/{worker_id}/sync")
PAYLOAD_BYTES = 1_000
SINGLE_BYTES = PAYLOAD_BYTES + BODY_OVERHEAD_BYTES
TASK_ID = "0192f0c1-2b3c-7d4e-8f50-112233445566"


def _with_bodies() -> list[tuple[str, str]]:
    app = litestar_app(offline_service())
    return sorted(
        (method, path)
        for path, handler in routes(app)
        if operation_of_handler(handler).body is not None
        for method in handler.http_methods
    )


ROUTES = _with_bodies()
each_route = pytest.mark.parametrize(("method", "path"), ROUTES, ids=[f"{method} {path}" for method, path in ROUTES])


@pytest.fixture
def settings() -> QueueSettings:
    return QueueSettings(admission=Admission(max_payload_bytes=PAYLOAD_BYTES))


def _limit(path: str) -> int:
    return MAX_BULK_BODY_BYTES if path in BULK else SINGLE_BYTES


def _concrete(path: str) -> str:
    return path.format(task_id=TASK_ID, worker_id="w1")


async def _in_chunks(size: int) -> AsyncIterator[bytes]:
    """Without a length beforehand."""
    for start in range(0, size, 50_000):
        yield b" " * min(50_000, size - start)


def test_the_calls_about_many_tasks_are_among_the_routes() -> None:
    assert {path for _, path in ROUTES} > set(BULK)


@each_route
async def test_a_body_that_says_it_is_too_large_is_refused(
    http: httpx.AsyncClient, kit: Kit, method: str, path: str
) -> None:
    before = await kit.dump()

    answer = await http.request(method, _concrete(path), content=b" " * (_limit(path) + 1))

    assert_problem(answer, 413)
    assert await kit.dump() == before


@each_route
async def test_a_body_that_turns_out_to_be_too_large_is_refused(
    http: httpx.AsyncClient, kit: Kit, method: str, path: str
) -> None:
    before = await kit.dump()

    answer = await http.request(method, _concrete(path), content=_in_chunks(_limit(path) + 1))

    assert_problem(answer, 413)
    assert await kit.dump() == before


@each_route
async def test_a_body_as_large_as_allowed_is_read(http: httpx.AsyncClient, kit: Kit, method: str, path: str) -> None:
    answer = await http.request(method, _concrete(path), content=b" " * _limit(path))

    assert answer.status_code != 413, answer.text


async def test_the_largest_payload_with_the_most_beside_it_fits(http: httpx.AsyncClient, kit: Kit) -> None:
    frame = {"a": ""}
    parameters = {"a": "x" * (PAYLOAD_BYTES - len(str(frame).replace(" ", "")))}
    tags = {f"{number:02d}" + "k" * 62: "\u20ac" * 256 for number in range(32)}
    capabilities = [f"{number:02d}" + "c" * 62 for number in range(16)]
    task = {"task_type": "t" * 64, "parameters": parameters, "tags": tags, "required_capabilities": capabilities}

    answer = await http.post("/api/v1/tasks", json={**task, "idempotency_key": "k" * 255})

    assert answer.status_code == 201, answer.text
