"""Handlers: which function does which type of task, how it runs, and how many at once."""

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
    """A handler with a concurrency or rate of its own gets its own slots, beside those the others share."""

    concurrency: int | None = None
    rate_per_second: float | None = None
    """Of this worker process; the service's own limits hold for all of them together."""


class Handler:
    def __init__(
        self,
        task_type: str,
        function: Callable[..., Any],
        *,
        takes: Takes = "arguments",
        in_process: bool = False,
        options: HandlerOptions | None = None,
        submits_with: Mapping[str, Any] = NOTHING,
    ) -> None:
        """`submits_with` travels with its own `submit`; a worker makes nothing of it."""
        self.task_type = task_type
        self.function = function
        self.submits_with = submits_with
        self.mode: Mode = "loop" if inspect.iscoroutinefunction(function) else "process" if in_process else "thread"
        self.options = options or HandlerOptions()
        if in_process and self.mode == "loop":
            raise HandlerError(f"{task_type}: an async handler runs on the loop, not in a process")
        decoder = argument_decoder if takes == "arguments" else payload_decoder
        self._decode: Decode
        self._decode, self.context_name = decoder(function)
        if in_process and self.context_name:
            raise HandlerError(f"{task_type}: a handler in a process of its own cannot be given a context")

    def arguments(self, parameters: bytes, context: Any) -> Arguments:
        """Checked against the type hints; raises `InvalidArguments`."""
        arguments: Arguments = self._decode(parameters)
        if self.context_name is not None:
            arguments[self.context_name] = context
        return arguments

    @property
    def is_apart(self) -> bool:
        return self.options.concurrency is not None or self.options.rate_per_second is not None


class Handlers:
    """By task type; a type has one."""

    def __init__(self) -> None:
        self._by_type: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        known = self._by_type.get(handler.task_type)
        if known is not None and known.function is not handler.function:
            raise HandlerError(f"{handler.task_type} has a handler already: {known.function.__qualname__}")
        self._by_type[handler.task_type] = handler

    def replace(self, handler: Handler) -> None:
        """The same type with other settings."""
        self._by_type[handler.task_type] = handler

    def clear(self) -> None:
        """For tests: what one registers is not for the next."""
        self._by_type.clear()

    def get(self, task_type: str) -> Handler | None:
        return self._by_type.get(task_type)

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_type.values())

    def __len__(self) -> int:
        return len(self._by_type)

    def apart(self) -> list[Handler]:
        return [handler for handler in self if handler.is_apart]

    def shared(self) -> list[Handler]:
        return [handler for handler in self if not handler.is_apart]
