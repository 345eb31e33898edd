"""What fuzzing found once: small tests that say it in one line each."""

import httpx
import pytest

from tests.api.bench import Bench, assert_problem

TASKS = "/api/v1/tasks"


async def test_a_retry_with_an_empty_priority_is_refused(bench: Bench) -> None:
    task_id = await bench.submit()
    await bench.call("DELETE", f"{TASKS}/{task_id}")

    answer = await bench.http.post(f"{TASKS}/{task_id}/retry", json={"new_priority": ""})

    assert assert_problem(answer, 422)["errors"][0]["pointer"] == "/new_priority"
    assert (await bench.read(task_id))["status"] == "cancelled"


async def test_an_empty_client_id_is_not_the_callers_own(bench: Bench) -> None:
    assert_problem(await bench.http.post(TASKS, json={"task_type": "resize", "client_id": ""}), 422)


@pytest.mark.parametrize("key", ["", '""', "k" * 256])
async def test_a_bad_key_in_the_header_is_refused_even_where_the_body_has_its_own(bench: Bench, key: str) -> None:
    body = {"task_type": "resize", "idempotency_key": "mine"}

    answer = await bench.http.post(TASKS, json=body, headers={"Idempotency-Key": key})

    assert_problem(answer, 422)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (f"{TASKS}/0195546e-3c7a-7d21-9f04-00a1b2c3d4e5", "DELETE, GET, OPTIONS"),
        ("/api/v1/queue/limits", "GET, OPTIONS, PUT"),
        ("/internal/workers/w1/poll", "OPTIONS, POST"),
        ("/livez", "GET, OPTIONS"),
    ],
)
async def test_options_tells_every_method_of_a_path(http: httpx.AsyncClient, path: str, methods: str) -> None:
    answer = await http.options(path)

    assert (answer.status_code, answer.headers["allow"], answer.content) == (204, methods, b"")


async def test_an_outcome_echoes_whatever_id_it_was_given(bench: Bench) -> None:
    worker_id = await bench.register()

    answer = await bench.sync(worker_id, starts=[{"task_id": "no id at all", "lease": "1-x"}])

    (outcome,) = answer["outcomes"]
    assert (outcome["task_id"], outcome["ok"], outcome["problem"]["status"]) == ("no id at all", False, 404)
