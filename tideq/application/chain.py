"""`tq("type")…`: the chainable form. A chain names a task type, sets its handler and submits tasks.

Setting a handler runs nothing: tasks run once `tq.start()` is called, or where `tideq worker` imports the module.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack, cast, overload

from tideq.application import connection, in_process
from tideq.application.connection import default_client
from tideq.application.in_process import InProcessWorker, Stopped
from tideq.application.inline_worker import MAX_BATCH, InlineWorker
from tideq.application.reminder import warn_later
from tideq.client import Client
from tideq.client.models.queue import QueueStats
from tideq.client.models.tasks import NewTask, Submitted, TaskOptions
from tideq.client.options import near, strict, unknown
from tideq.workers.runtime.handlers import Handler, HandlerOptions
from tideq.workers.runtime.registry import registered

Payload = TypeVar("Payload")


@strict
class Chainable(Generic[Payload]):
    """The settings of one task type. Setters return the chain; the result of `add` continues it too."""

    __slots__ = ()

    def _chain(self) -> "Chain[Payload]":
        raise NotImplementedError

    def set_worker(self, function: Callable[..., Any]) -> "Chain[Payload]":
        """Sets the handler: a function of the payload, plain or async; a second argument may take the context.

        It runs once the application calls `tq.start()`, or in processes of `tideq worker --handlers its.module`.
        """
        return self._chain().with_function(function)

    def set_worker_count(self, count: int) -> "Chain[Payload]":
        """Sets how many tasks run at once in each worker process."""
        return self._chain().with_slots(concurrency=count)

    def set_rate_limit(self, per_second: float) -> "Chain[Payload]":
        """Sets the tasks a second of each worker process; `client.queue.set_limits` limits all workers together."""
        return self._chain().with_slots(rate_per_second=per_second)

    def set_timeout(self, seconds: float) -> "Chain[Payload]":
        """Sets how long one execution may take, for tasks added from now on."""
        return self._chain().with_timeout(seconds)

    def add(
        self, payload: Payload, options: TaskOptions | None = None, /, **named: Unpack[TaskOptions]
    ) -> "Added[Payload]":
        """Submits one task. Options are passed by name or as one mapping; `NewTask` documents them.

        Returns the submitted task, which continues the chain: `tq("crawl").add(a).add(b)`.
        """
        chain = self._chain()
        submitted = default_client().submit(chain.task_type, payload, **chain.with_defaults(options, named))
        return _added(chain, submitted)

    def add_many(
        self, payloads: Iterable[Payload], options: TaskOptions | None = None, /, **named: Unpack[TaskOptions]
    ) -> tuple[Submitted, ...]:
        """Submits many tasks in as few requests as possible."""
        chain = self._chain()
        chosen = chain.with_defaults(options, named)
        return default_client().submit_many(NewTask(chain.task_type, payload, **chosen) for payload in payloads)

    if not TYPE_CHECKING:  # type checkers must not see it

        def __getattr__(self, name: str) -> NoReturn:
            raise _missing(self, name)


class Chain(Chainable[Payload]):
    """One task type; `tq` returns the same chain for the same type."""

    def __init__(self, task_type: str) -> None:
        self.task_type = task_type
        self._function: Callable[..., Any] | None = None
        self._slots = HandlerOptions()
        self._defaults: TaskOptions = {}

    def _chain(self) -> "Chain[Payload]":
        return self

    def with_function(self, function: Callable[..., Any]) -> "Chain[Payload]":
        self._function = function
        warn_later(self.task_type)
        return self._register()

    def with_slots(self, *, concurrency: int | None = None, rate_per_second: float | None = None) -> "Chain[Payload]":
        """None keeps the present value."""
        self._slots = HandlerOptions(
            concurrency=self._slots.concurrency if concurrency is None else concurrency,
            rate_per_second=self._slots.rate_per_second if rate_per_second is None else rate_per_second,
        )
        return self._register()

    def with_timeout(self, seconds: float) -> "Chain[Payload]":
        self._defaults["timeout_seconds"] = seconds
        return self._register()

    def with_defaults(self, options: TaskOptions | None, named: TaskOptions) -> TaskOptions:
        if options is not None and named:
            raise TypeError("add() takes its options as one mapping or by name, not both")
        chosen = options or named
        if not chosen.keys() <= TaskOptions.__annotations__.keys():
            raise unknown(self.add, chosen, TaskOptions.__annotations__)
        return cast("TaskOptions", {**self._defaults, **chosen})

    def _register(self) -> "Chain[Payload]":
        if self._function is not None:
            registered.replace(
                Handler(
                    self.task_type, self._function, takes="payload", options=self._slots, submit_options=self._defaults
                )
            )
        return self


class Added(Submitted, Chainable[Payload], frozen=True, dict=True):
    """A submitted task that continues its chain."""

    def _chain(self) -> Chain[Payload]:
        return vars(self)["chain"]


def _added(chain: Chain[Payload], submitted: Submitted) -> Added[Payload]:
    added = Added[Payload](**{name: getattr(submitted, name) for name in Submitted.__struct_fields__})
    # Not a struct field, so that its JSON is the submitted task only.
    vars(added)["chain"] = chain
    return added


@strict
class TaskQueue:
    """`tq`: `tq(type)` returns the chain of a type; the methods concern the whole queue and this process's worker."""

    @overload
    def __call__(self, task_type: str) -> Chain[dict[str, Any]]: ...
    @overload
    def __call__(self, task_type: str, payload: type[Payload]) -> Chain[Payload]: ...
    def __call__(self, task_type: str, payload: type[Any] = dict) -> Chain[Any]:
        """Returns the chain of a task type, always the same one. `payload` is for the type checker."""
        del payload
        return _chains.setdefault(task_type, Chain(task_type))

    def init(self, url: str | None = None, api_key: str | None = None) -> Client:
        """Sets the service, instead of TIDEQ_URL and TIDEQ_API_KEY; returns the client."""
        return connection.init(url, api_key)

    def pause(self, task_type: str | None = None, *, reason: str = "", resume_at: datetime | None = None) -> None:
        """Stops handing out tasks to all workers, of one type or of all types. Admins only."""
        default_client().queue.pause(task_type, reason=reason, resume_at=resume_at)

    def resume(self, task_type: str | None = None) -> None:
        """Hands out tasks again. Admins only."""
        default_client().queue.resume(task_type)

    def stats(self) -> QueueStats:
        """Statistics of the queue. For those of this process call `stats` on the worker that `start` returned."""
        return default_client().queue.stats()

    def start(
        self, *, concurrency: int = 10, capabilities: tuple[str, ...] = (), drain_seconds: float = 30.0
    ) -> InProcessWorker:
        """Runs every registered handler in the background; returns the worker, which can be paused and stopped."""
        return in_process.start(concurrency=concurrency, capabilities=capabilities, drain_seconds=drain_seconds)

    def stop(self, timeout_seconds: float | None = None) -> Stopped:
        """Drains and ends the worker of this process, if any. In a running loop, `await tq.stop()` waits for it."""
        return in_process.stop(timeout_seconds)

    def is_running(self) -> bool:
        """Whether the worker of this process is running."""
        return in_process.is_running()

    def process_batch(self, limit: int = MAX_BATCH) -> int:
        """Runs ready tasks in this thread, one after the other, until none is ready; returns how many.

        A task that fails waits for its retry as usual: a later batch may run it.
        """
        with InlineWorker(default_client().transport, registered, "batch") as worker:
            return sum(1 for _ in worker.run(limit))

    if not TYPE_CHECKING:  # type checkers must not see it

        def __getattr__(self, name: str) -> NoReturn:
            raise _missing(self, name)


_chains: dict[str, Chain[Any]] = {}

tq = TaskQueue()


def clear_chains() -> None:
    """For tests: chains of one test must not reach the next."""
    _chains.clear()


def _missing(owner: object, name: str) -> AttributeError:
    close = "" if name.startswith("_") else near(name, [each for each in dir(type(owner)) if not each.startswith("_")])
    return AttributeError(
        f"{type(owner).__name__!r} object has no attribute {name!r}" + (f"; did you mean {close!r}?" if close else ""),
        name=name,
        obj=owner,
    )
