"""`tq("type")…`: the chainable form. A chain names a type of task, who does it, and hands work to it."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, Unpack, cast, overload

from tideq.application.connection import default_client
from tideq.client.models.tasks import NewTask, Submitted, TaskOptions
from tideq.workers.runtime.handlers import Handler, HandlerOptions
from tideq.workers.runtime.registry import registered

Payload = TypeVar("Payload")


class Chain(Generic[Payload]):
    """One type of task. Every setter returns the chain; `add` submits."""

    def __init__(self, task_type: str) -> None:
        self.task_type = task_type
        self._function: Callable[..., Any] | None = None
        self._slots = HandlerOptions()
        self._defaults: TaskOptions = {}

    def set_worker(self, function: Callable[..., Any]) -> "Chain[Payload]":
        """Who does it: a function of the payload, plain or async; a second argument may take the context."""
        self._function = function
        return self._register()

    def set_worker_count(self, count: int) -> "Chain[Payload]":
        """How many at once in each worker process."""
        self._slots = HandlerOptions(concurrency=count, rate_per_second=self._slots.rate_per_second)
        return self._register()

    def set_rate_limit(self, per_second: float) -> "Chain[Payload]":
        """How many a second in each worker process; `client.queue.limit` holds for all of them together."""
        self._slots = HandlerOptions(concurrency=self._slots.concurrency, rate_per_second=per_second)
        return self._register()

    def set_timeout(self, seconds: float) -> "Chain[Payload]":
        """How long one execution may take, of tasks added from here on."""
        self._defaults["timeout_seconds"] = seconds
        return self

    def add(self, payload: Payload, **options: Unpack[TaskOptions]) -> Submitted:
        """Hand in one task."""
        return default_client().submit(self.task_type, payload, **self._with(options))

    def add_many(self, payloads: Iterable[Payload], **options: Unpack[TaskOptions]) -> tuple[Submitted, ...]:
        """Hand in many, in as few calls as can be."""
        chosen = self._with(options)
        return default_client().submit_many(NewTask(self.task_type, payload, **chosen) for payload in payloads)

    def _with(self, options: TaskOptions) -> TaskOptions:
        return cast("TaskOptions", {**self._defaults, **options})

    def _register(self) -> "Chain[Payload]":
        if self._function is not None:
            registered.replace(Handler(self.task_type, self._function, takes="payload", options=self._slots))
        return self


_chains: dict[str, Chain[Any]] = {}


def forget_all() -> None:
    """For tests: what one sets is not for the next."""
    _chains.clear()


@overload
def tq(task_type: str) -> Chain[dict[str, Any]]: ...
@overload
def tq(task_type: str, payload: type[Payload]) -> Chain[Payload]: ...
def tq(task_type: str, payload: type[Any] = dict) -> Chain[Any]:
    """The chain of a type; the same one wherever it is asked for. `payload` is for the type checker."""
    del payload
    return _chains.setdefault(task_type, Chain(task_type))
