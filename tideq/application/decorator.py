"""`@task`: a function that can be called here or submitted to a worker, with the same arguments and types."""

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
    """The result of `@task`. A call runs the function here; `submit` submits a task."""

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
        """Runs the function here. Where it takes a context it gets one whose reports are discarded."""
        if self._context_name is None or self._context_name in kwargs:
            return self.function(*args, **kwargs)
        context = TaskContext("here", self.task_type, 1, "", float("inf"), DiscardedReports())
        bound = self._signature.bind(*args, **kwargs)
        return self.function(**{self._context_name: context}, **bound.arguments)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Submitted:
        """Submits a task with these arguments and the decorator's options."""
        task = self.new_task(*args, **kwargs)
        return self._submitter().submit(task.task_type, task.parameters, **self._options)

    delay = submit
    """Alias, as in Celery."""

    def submit_many(self, arguments: Iterable[Mapping[str, Any]]) -> tuple[Submitted, ...]:
        """Submits one task for each mapping of argument names to values, in as few requests as possible."""
        submit_many = cast("Callable[..., NewTask]", self.new_task)
        return self._submitter().submit_many(submit_many(**each) for each in arguments)

    def new_task(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """Returns the task that `submit` would submit."""
        bound = self._signature.bind(*args, **kwargs)
        parameters = dict(bound.arguments)
        for name, parameter in bound.signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                parameters.update(parameters.pop(name, {}))
        return NewTask(self.task_type, parameters, **self._options)

    def options(self, **options: Unpack[TaskOptions]) -> "TaskFunction[P, R]":
        """Returns the same function with other options: `resize.options(priority="high").submit(…)`."""
        return TaskFunction(
            self.function, self.task_type, cast("TaskOptions", {**self._options, **options}), self._client
        )

    def on(self, client: Client) -> "TaskFunction[P, R]":
        """Returns the same function, submitted through this client."""
        return TaskFunction(self.function, self.task_type, self._options, client)

    def _submitter(self) -> Client:
        return self._client or default_client()


class DiscardedReports:
    """The reporter of a context outside a worker."""

    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None: ...
    def extend(self, task_id: str, lease: str, seconds: float) -> None: ...


class Decorate(Protocol):
    """The type of `@task(…)`: callers do not pass the context, which is the first parameter."""

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
    """Makes a function a task. It runs under `tideq worker --handlers its.module`.

    `name` is the task type, by default the name of the function. `process` runs it in a child process, for CPU-bound
    work. `concurrency` and `rate_limit` (a second) hold for each worker process. `submit` uses all other options;
    `timeout` is short for `timeout_seconds`. A task submitted over plain HTTP has the service's defaults.
    """
    if isinstance(function, str):
        function, name = None, function
    if timeout is not None:
        options["timeout_seconds"] = timeout

    def decorate(function: Callable[..., Any]) -> TaskFunction[..., Any]:
        task_type = name or function.__name__
        slots = HandlerOptions(concurrency=concurrency, rate_per_second=rate_limit)
        registered.add(Handler(task_type, function, in_process=process, options=slots, submit_options=options))
        return TaskFunction(function, task_type, options)

    return decorate if function is None else decorate(function)


class RegisteredTask(NamedTuple):
    """A handler registered in this process."""

    function: Callable[..., Any]
    options: Mapping[str, Any]
    """Options of tasks that this process submits."""


def get_registered_tasks() -> dict[str, RegisteredTask]:
    """Returns the handlers registered in this process, by task type."""
    return {handler.task_type: RegisteredTask(handler.function, handler.submit_options) for handler in registered}


def _without(signature: inspect.Signature, context_name: str | None) -> inspect.Signature:
    """The signature for callers: the worker passes the context."""
    return signature.replace(parameters=[each for name, each in signature.parameters.items() if name != context_name])
