"""No call drops what it does not know: every public method refuses it, and names what was probably meant.

The methods are found by walking over the classes, so one that is added is tried too.
"""

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, cast, get_args

import pytest

import tideq
from tideq.application import chain, decorator, in_process
from tideq.application.app_worker import Worker
from tideq.client import (
    AsyncClient,
    AsyncEventStream,
    AsyncListing,
    Backoff,
    Client,
    EventStream,
    Listing,
    NewTask,
    RetryPolicy,
    Timeouts,
)
from tideq.client.bulk import AsyncPullQueue, PullQueue

PARTS = ("queue", "dlq", "workers")
FREE = {"TaskFunction.submit", "TaskFunction.delay", "TaskFunction.new_task"}
"""Their names are the arguments of the task's own function, which checks them."""


def classes() -> list[type]:
    """The clients, what hangs on them, and what else an application calls."""
    clients = (Client("http://127.0.0.1:1"), AsyncClient("http://127.0.0.1:1"))
    parts: list[type] = [type(getattr(client, part)) for client in clients for part in PARTS]
    others = (Listing, AsyncListing, EventStream, AsyncEventStream, PullQueue, AsyncPullQueue)
    ours = (chain.Chainable, chain.TaskQueue, decorator.TaskFunction, Worker, in_process.InProcessWorker)
    return [*map(type, clients), *parts, *others, *ours]


def methods(kind: type) -> Iterator[types.FunctionType]:
    for name, method in vars(kind).items():
        if isinstance(method, types.FunctionType) and (name == "__init__" or not name.startswith("_")):
            yield method


CALLS = [
    *(method for kind in classes() for method in methods(kind) if method.__qualname__ not in FREE),
    decorator.task,
    in_process.start,
    in_process.stop,
    tideq.init,
    # What calls are given: they are made by name as well.
    *(Backoff, RetryPolicy, Timeouts),
]


def names(call: Callable[..., Any]) -> list[str]:
    """Everything that can be given by name."""
    known: list[str] = []
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            (options,) = get_args(parameter.annotation)
            known += options.__annotations__
        elif parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            known += [name] if name != "self" else []
    return known


async def refusal(call: Callable[..., Any], option: str) -> str:
    """Called with nothing but this: the option is refused before anything that is missing is missed."""
    subject = [object()] if next(iter(inspect.signature(call).parameters), "") == "self" else []
    try:
        answer = call(*subject, **{option: 1})
        await answer
    except TypeError as error:
        return str(error)
    raise AssertionError(f"{call.__qualname__} took {option}")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__qualname__)
async def test_every_call_refuses_an_unknown_option_and_names_the_near_one(call: Callable[..., Any]) -> None:
    assert "nonsense_of_mine" in await refusal(call, "nonsense_of_mine")
    for known in names(call):
        assert f"did you mean {known!r}" in await refusal(call, f"{known}x")


def test_the_walk_meets_every_call_of_both_clients_and_of_all_that_hangs_on_them() -> None:
    met = {call.__qualname__ for call in CALLS}
    hanging: set[type] = {
        type(part)
        for client in (Client("http://127.0.0.1:1"), AsyncClient("http://127.0.0.1:1"))
        for name, part in vars(client).items()
        if not name.startswith("_") and name != "transport"
    }

    assert {f"{form}.{name}" for form in ("Client", "AsyncClient") for name in ("submit", "list", "events")} <= met
    assert {"Dlq.list", "AsyncDlq.replay_all", "Queue.pause", "PullQueue.retry", "Chainable.add"} <= met
    assert hanging <= set(classes())


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("state", "status"),
        ("name", "task_type"),
        ("type", "task_type"),
        ("limit", "page_size"),
        ("taskType", "task_type"),
    ],
)
def test_a_list_by_other_libraries_filters_is_refused_and_lists_nothing(option: str, meant: str) -> None:
    """TaskLib's own call is `list_tasks(state=…, name=…, limit=…)`: without a refusal it would list every task."""
    list_tasks: Callable[..., Any] = Client("http://127.0.0.1:1").list

    with pytest.raises(TypeError, match=f"did you mean '{meant}'"):
        list_tasks(**{option: "failed"})


@pytest.mark.parametrize(
    ("option", "meant"), [("maxAttempts", "max_retries"), ("runAfter", "run_at"), ("idempotencyKey", "idempotency_key")]
)
def test_camel_case_is_named_in_snake_case(option: str, meant: str) -> None:
    submit: Callable[..., Any] = Client("http://127.0.0.1:1").submit

    with pytest.raises(TypeError, match=f"did you mean '{meant}'"):
        submit("mail", {}, **{option: 1})


def test_a_task_is_not_made_with_other_libraries_options() -> None:
    make = cast("Callable[..., Any]", NewTask)

    with pytest.raises(TypeError, match="maxAttempts"):
        make("mail", {}, maxAttempts=3)
    with pytest.raises(TypeError, match="task_type"):
        make(parameters={})


async def test_what_is_known_still_passes(client: AsyncClient, task_type: str) -> None:
    submitted = await client.submit(task_type, {}, priority="high", tags={"team": "web"})

    found = [task.task_id async for task in client.list(task_type=task_type, tags={"team": "web"}, page_size=5)]

    assert found == [submitted.task_id]
    assert [letter async for letter in client.dlq.list(task_type=task_type, page_size=5)] == []
