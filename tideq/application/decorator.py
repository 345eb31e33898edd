"""`@task`: a function that can be called here, or submitted to run elsewhere, with the same arguments and types."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from tideq.application.connection import default_client
from tideq.client import Client
from tideq.client.models.tasks import NewTask, Submitted, TaskOptions
from tideq.client.options import strict, strict_call
from tideq.workers.runtime.arguments import argument_decoder
from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.handlers import Handler, HandlerOptions
from tideq.workers.runtime.registry import registered

P = ParamSpec("P")
R = TypeVar("R")


@strict
class TaskFunction(Generic[P, R]):
    """What `@task` makes of a function. Calling it runs it here; `submit` hands it to a worker."""

    def __init__(
        self, function: Callable[..., R], task_type: str, options: TaskOptions, client: Client | None = None
    ) -> None:
        self.function = function
        self.task_type = task_type
        self._options = options
        self._client = client
        self._context_name = argument_decoder(function)[1]
        self._signature = _without(inspect.signature(function), self._context_name)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Here and now. A context is made up where the function takes one: its words go nowhere."""
        if self._context_name is None or self._context_name in kwargs:
            return self.function(*args, **kwargs)
        context = TaskContext("here", self.task_type, 1, "", float("inf"), Unheard())
        bound = self._signature.bind(*args, **kwargs)
        return self.function(**{self._context_name: context}, **bound.arguments)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Submitted:
        """Run it on a worker, with these arguments and the decorator's options."""
        task = self.new_task(*args, **kwargs)
        return self._submitter().submit(task.task_type, task.parameters, **self._options)

    delay = submit
    """The same under the name many know it by."""

    def submit_many(self, arguments: Iterable[Mapping[str, Any]]) -> tuple[Submitted, ...]:
        """One task for each mapping of argument names to values, in as few calls as can be."""
        submit_many = cast("Callable[..., NewTask]", self.new_task)
        return self._submitter().submit_many(submit_many(**each) for each in arguments)

    def new_task(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """What `submit` would hand in."""
        bound = self._signature.bind(*args, **kwargs)
        parameters = dict(bound.arguments)
        for name, parameter in bound.signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                parameters.update(parameters.pop(name, {}))
        return NewTask(self.task_type, parameters, **self._options)

    def options(self, **options: Unpack[TaskOptions]) -> "TaskFunction[P, R]":
        """The same function with other options: `resize.options(priority="high", delay_seconds=60).submit(…)`."""
        return TaskFunction(
            self.function, self.task_type, cast("TaskOptions", {**self._options, **options}), self._client
        )

    def on(self, client: Client) -> "TaskFunction[P, R]":
        """The same function, submitted through this client."""
        return TaskFunction(self.function, self.task_type, self._options, client)

    def _submitter(self) -> Client:
        return self._client or default_client()


class Unheard:
    """A context's words, where nobody listens."""

    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None: ...
    def extend(self, task_id: str, lease: str, seconds: float) -> None: ...


class Decorate(Protocol):
    """What `@task(…)` is: to callers the context, which comes first, is no argument."""

    @overload
    def __call__(self, function: Callable[Concatenate[TaskContext, P], R], /) -> TaskFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R]: ...


@overload
def task(function: Callable[Concatenate[TaskContext, P], R], /) -> TaskFunction[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...
@overload
def task(
    name: str | None = None,
    /,
    *,
    process: bool = False,
    concurrency: int | None = None,
    rate_limit: float | None = None,
    timeout: float | None = None,
    **options: Unpack[TaskOptions],
) -> Decorate: ...
@overload
def task(
    *,
    name: str | None = None,
    process: bool = False,
    concurrency: int | None = None,
    rate_limit: float | None = None,
    timeout: float | None = None,
    **options: Unpack[TaskOptions],
) -> Decorate: ...
@strict_call
def task(
    function: Callable[..., Any] | str | None = None,
    /,
    *,
    name: str | None = None,
    process: bool = False,
    concurrency: int | None = None,
    rate_limit: float | None = None,
    timeout: float | None = None,
    **options: Unpack[TaskOptions],
) -> Any:
    """Make a function a task. It runs under `tideq worker --handlers its.module`.

    `name` is its task type, the function's own name by default. `process` runs it in a child process, for work that
    computes. `concurrency` and `rate_limit` (a second) hold for each worker process. All else travels with `submit`:
    `timeout` is short for `timeout_seconds`; a task submitted over plain HTTP has the service's defaults.
    """
    if isinstance(function, str):
        function, name = None, function
    if timeout is not None:
        options["timeout_seconds"] = timeout

    def decorate(function: Callable[..., Any]) -> TaskFunction[..., Any]:
        task_type = name or function.__name__
        slots = HandlerOptions(concurrency=concurrency, rate_per_second=rate_limit)
        registered.add(Handler(task_type, function, in_process=process, options=slots, submits_with=options))
        return TaskFunction(function, task_type, options)

    return decorate if function is None else decorate(function)


class RegisteredTask(NamedTuple):
    """What a worker in this process could run, and how."""

    function: Callable[..., Any]
    options: Mapping[str, Any]
    """What its submissions say, where they are made from here."""


def get_registered_tasks() -> dict[str, RegisteredTask]:
    """What a worker in this process could run, by task type."""
    return {handler.task_type: RegisteredTask(handler.function, handler.submits_with) for handler in registered}


def _without(signature: inspect.Signature, context_name: str | None) -> inspect.Signature:
    """The context comes from the worker."""
    return signature.replace(parameters=[each for name, each in signature.parameters.items() if name != context_name])
