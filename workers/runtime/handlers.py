"""Handlers: the function for each task type, how it runs, and its concurrency and rate."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from tideq.workers.runtime.arguments import Arguments, Decode, HandlerError, argument_decoder, payload_decoder

Mode = Literal["thread", "loop", "process"]
Takes = Literal["arguments", "payload"]
NOTHING: Mapping[str, Any] = MappingProxyType({})


class HandlerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A handler with its own concurrency or rate gets its own slots, apart from the shared slots."""

    concurrency: int | None = None
    rate_per_second: float | None = None
    """Limit of this worker process; limits set at the service hold for all workers together."""


class Handler:
    def __init__(
        self,
        task_type: str,
        function: Callable[..., Any],
        *,
        takes: Takes = "arguments",
        in_process: bool = False,
        options: HandlerOptions | None = None,
        submit_options: Mapping[str, Any] = NOTHING,
    ) -> None:
        """`submit_options` are used by `submit` of the application; a worker ignores them."""
        self.task_type = task_type
        self.function = function
        self.submit_options = submit_options
        self.mode: Mode = "loop" if inspect.iscoroutinefunction(function) else "process" if in_process else "thread"
        self.options = options or HandlerOptions()
        if in_process and self.mode == "loop":
            raise HandlerError(f"{task_type}: an async handler runs on the loop, not in a process")
        decoder = argument_decoder if takes == "arguments" else payload_decoder
        self._decode: Decode
        self._decode, self.context_name = decoder(function)
        if in_process and self.context_name:
            raise HandlerError(f"{task_type}: a handler that runs in a child process cannot take a context")

    def arguments(self, parameters: bytes, context: Any) -> Arguments:
        """Checked against the type hints; raises `InvalidArguments`."""
        arguments: Arguments = self._decode(parameters)
        if self.context_name is not None:
            arguments[self.context_name] = context
        return arguments

    @property
    def has_own_slots(self) -> bool:
        return self.options.concurrency is not None or self.options.rate_per_second is not None


class Handlers:
    """One handler for each task type."""

    def __init__(self) -> None:
        self._by_type: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        existing = self._by_type.get(handler.task_type)
        if existing is not None and existing.function is not handler.function:
            raise HandlerError(f"{handler.task_type} has a handler already: {existing.function.__qualname__}")
        self._by_type[handler.task_type] = handler

    def replace(self, handler: Handler) -> None:
        self._by_type[handler.task_type] = handler

    def clear(self) -> None:
        """For tests: handlers of one test must not reach the next."""
        self._by_type.clear()

    def get(self, task_type: str) -> Handler | None:
        return self._by_type.get(task_type)

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_type.values())

    def __len__(self) -> int:
        return len(self._by_type)

    def with_own_slots(self) -> list[Handler]:
        return [handler for handler in self if handler.has_own_slots]

    def with_shared_slots(self) -> list[Handler]:
        return [handler for handler in self if not handler.has_own_slots]
