"""`tq("type")…`: the chainable form. A chain names a type of task, who does it, and hands work to it.

Setting a worker runs nothing by itself: that begins with `tq.start()`, or where `tideq worker` imports the module.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack, cast, overload

from tideq.application import connection, in_process
from tideq.application.connection import default_client
from tideq.application.in_process import InProcessWorker, Stopped
from tideq.application.inline_worker import MAX_BATCH, InlineWorker
from tideq.application.reminder import remind_to_begin
from tideq.client import Client
from tideq.client.models.queue import QueueStats
from tideq.client.models.tasks import NewTask, Submitted, TaskOptions
from tideq.client.options import near, strict, unknown
from tideq.workers.runtime.handlers import Handler, HandlerOptions
from tideq.workers.runtime.registry import registered

Payload = TypeVar("Payload")


@strict
class Chainable(Generic[Payload]):
    """What can be said of one type of task. Setters return the chain; `add` submits, and can be gone on from too."""

    __slots__ = ()

    def _chain(self) -> "Chain[Payload]":
        raise NotImplementedError

    def set_worker(self, function: Callable[..., Any]) -> "Chain[Payload]":
        """Who does it: a function of the payload, plain or async; a second argument may take the context.

        It runs once the application says `tq.start()`, or in processes of `tideq worker --handlers its.module`.
        """
        return self._chain().does(function)

    def set_worker_count(self, count: int) -> "Chain[Payload]":
        """How many at once in each worker process."""
        return self._chain().runs(concurrency=count)

    def set_rate_limit(self, per_second: float) -> "Chain[Payload]":
        """How many a second in each worker process; `client.queue.set_limits` holds for all of them together."""
        return self._chain().runs(rate_per_second=per_second)

    def set_timeout(self, seconds: float) -> "Chain[Payload]":
        """How long one execution may take, of tasks added from here on."""
        return self._chain().lasts(seconds)

    def add(
        self, payload: Payload, options: TaskOptions | None = None, /, **named: Unpack[TaskOptions]
    ) -> "Added[Payload]":
        """Hand in one task. Options are named, or come as one mapping; `NewTask` says what they mean.

        The answer is the submitted task, and the chain goes on from it: `tq("crawl").add(a).add(b)`.
        """
        chain = self._chain()
        submitted = default_client().submit(chain.task_type, payload, **chain.with_defaults(options, named))
        return _added(chain, submitted)

    def add_many(
        self, payloads: Iterable[Payload], options: TaskOptions | None = None, /, **named: Unpack[TaskOptions]
    ) -> tuple[Submitted, ...]:
        """Hand in many, in as few calls as can be."""
        chain = self._chain()
        chosen = chain.with_defaults(options, named)
        return default_client().submit_many(NewTask(chain.task_type, payload, **chosen) for payload in payloads)

    if not TYPE_CHECKING:  # to a type checker there is nothing besides

        def __getattr__(self, name: str) -> NoReturn:
            raise _missing(self, name)


class Chain(Chainable[Payload]):
    """One type of task, the same wherever it is asked for."""

    def __init__(self, task_type: str) -> None:
        self.task_type = task_type
        self._function: Callable[..., Any] | None = None
        self._slots = HandlerOptions()
        self._defaults: TaskOptions = {}

    def _chain(self) -> "Chain[Payload]":
        return self

    def does(self, function: Callable[..., Any]) -> "Chain[Payload]":
        self._function = function
        remind_to_begin(self.task_type)
        return self._register()

    def runs(self, *, concurrency: int | None = None, rate_per_second: float | None = None) -> "Chain[Payload]":
        """What is left out stays as it was."""
        self._slots = HandlerOptions(
            concurrency=self._slots.concurrency if concurrency is None else concurrency,
            rate_per_second=self._slots.rate_per_second if rate_per_second is None else rate_per_second,
        )
        return self._register()

    def lasts(self, seconds: float) -> "Chain[Payload]":
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
                    self.task_type, self._function, takes="payload", options=self._slots, submits_with=self._defaults
                )
            )
        return self


class Added(Submitted, Chainable[Payload], frozen=True, dict=True):
    """A task that was handed in, from which its chain goes on."""

    def _chain(self) -> Chain[Payload]:
        return vars(self)["chain"]


def _added(chain: Chain[Payload], submitted: Submitted) -> Added[Payload]:
    added = Added[Payload](**{name: getattr(submitted, name) for name in Submitted.__struct_fields__})
    # No field of it: written as JSON it is what was submitted, and nothing else.
    vars(added)["chain"] = chain
    return added


@strict
class TaskQueue:
    """`tq`: called with a type it is that type's chain; its own methods are about the whole queue and its work here."""

    @overload
    def __call__(self, task_type: str) -> Chain[dict[str, Any]]: ...
    @overload
    def __call__(self, task_type: str, payload: type[Payload]) -> Chain[Payload]: ...
    def __call__(self, task_type: str, payload: type[Any] = dict) -> Chain[Any]:
        """The chain of a type; the same one wherever it is asked for. `payload` is for the type checker."""
        del payload
        return _chains.setdefault(task_type, Chain(task_type))

    def init(self, url: str | None = None, api_key: str | None = None) -> Client:
        """Say where the service is, instead of TIDEQ_URL and TIDEQ_API_KEY."""
        return connection.init(url, api_key)

    def pause(self, task_type: str | None = None, *, reason: str = "", resume_at: datetime | None = None) -> None:
        """Hand out nothing more to any worker anywhere, of one type or at all. Admins only."""
        default_client().queue.pause(task_type, reason=reason, resume_at=resume_at)

    def resume(self, task_type: str | None = None) -> None:
        """Hand out again. Admins only."""
        default_client().queue.resume(task_type)

    def stats(self) -> QueueStats:
        """Of the queue; what this process works on says the worker that `start` returns."""
        return default_client().queue.stats()

    def start(
        self, *, concurrency: int = 10, capabilities: tuple[str, ...] = (), drain_seconds: float = 30.0
    ) -> InProcessWorker:
        """Run every handler this process knows, in the background; returns what pauses, watches and stops that."""
        return in_process.start(concurrency=concurrency, capabilities=capabilities, drain_seconds=drain_seconds)

    def stop(self, timeout_seconds: float | None = None) -> Stopped:
        """Drain and end this process's worker, if there is one. In a running loop `await tq.stop()` waits for it."""
        return in_process.stop(timeout_seconds)

    def is_running(self) -> bool:
        """Whether `start` has begun and nothing has ended it."""
        return in_process.is_running()

    def process_batch(self, limit: int = MAX_BATCH) -> int:
        """Run what is ready here and now, one task after the other, until nothing is; how many that were.

        A task that fails waits for its retry like any other: a later batch takes it.
        """
        with InlineWorker(default_client().transport, registered, "batch") as worker:
            return sum(1 for _ in worker.run(limit))

    if not TYPE_CHECKING:  # to a type checker there is nothing besides

        def __getattr__(self, name: str) -> NoReturn:
            raise _missing(self, name)


_chains: dict[str, Chain[Any]] = {}

tq = TaskQueue()


def forget_all() -> None:
    """For tests: what one sets is not for the next."""
    _chains.clear()


def _missing(of: object, name: str) -> AttributeError:
    close = "" if name.startswith("_") else near(name, [each for each in dir(type(of)) if not each.startswith("_")])
    return AttributeError(
        f"{type(of).__name__!r} object has no attribute {name!r}" + (f"; did you mean {close!r}?" if close else ""),
        name=name,
        obj=of,
    )
