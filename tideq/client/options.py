"""Refuses unknown options and filters of a call, and suggests the likely name.

Ignoring an unknown filter would be dangerous: a caller that lists by it and cancels the result would cancel all tasks.
"""

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])

OTHER_WORDS = {
    "args": "parameters",
    "attempts": "max_retries",
    "capabilities": "required_capabilities",
    "database_url": "url",
    "default_max_attempts": "max_attempts",
    "default_visibility_timeout": "visibility_timeout",
    "delay": "delay_seconds",
    "id": "task_id",
    "kwargs": "parameters",
    "limit": "page_size",
    "max_attempts": "max_retries",
    "max_retry_delay": "backoff",
    "name": "task_type",
    "payload": "parameters",
    "retries": "max_retries",
    "retry_backoff_multiplier": "backoff",
    "retry_base_delay": "backoff",
    "run_after": "run_at",
    "scheduled_at": "run_at",
    "state": "status",
    "tag": "tags",
    "timeout": "timeout_seconds",
    "type": "task_type",
    "worker": "worker_id",
}
"""Names of other queues, and ours. Read only when a call is refused."""
CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def strict(kind: type[T]) -> type[T]:
    """Makes the constructor and the public methods of a class refuse unknown options."""
    for name, method in [*vars(kind).items()]:
        if isinstance(method, types.FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, strict_call(method))
    return kind


def strict_call(function: Function) -> Function:
    """Refuses options that neither the signature nor, for `**options: Unpack[Options]`, `Options` names."""
    names = names_of(function)
    if not names:
        return function
    name_set = frozenset(names)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **options: Any) -> Any:
            if options and not name_set.issuperset(options):
                raise unknown(function, options, names)
            return await function(*args, **options)

        return typing.cast("Function", call_async)

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if options and not name_set.issuperset(options):
            raise unknown(function, options, names)
        return function(*args, **options)

    return typing.cast("Function", call)


class StrictStruct(msgspec.StructMeta):
    """Of structs that users make: as a metaclass, because a struct has no constructor of its own."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        try:
            return super().__call__(*args, **options)
        except TypeError:
            known = self.__struct_fields__
            if options.keys() <= set(known):
                raise
            raise unknown(self, options, known) from None


def names_of(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """The keyword parameters without `self`; None where any name is accepted."""
    code: types.CodeType = function.__code__
    named = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    named = tuple(name for name in named if name != "self")
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        return named
    rest = function.__annotations__.get(code.co_varnames[_keywords_at(code)])
    (options,) = typing.get_args(rest) or (None,)
    return None if options is None else (*named, *options.__annotations__)


def _keywords_at(code: types.CodeType) -> int:
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)


def unknown(function: Callable[..., Any] | type, given: Collection[str], names: Collection[str]) -> TypeError:
    first = next(name for name in given if name not in names)
    return TypeError(f"{function.__qualname__.removesuffix('.__init__')}() has no option {first!r}{hint(first, names)}")


def hint(name: str, names: Collection[str]) -> str:
    """Suggests a similar name, else lists all names."""
    if close := near(name, names):
        return f"; did you mean {close!r}?"
    return f"; it has {', '.join(map(repr, names))}"


def near(name: str, names: Collection[str]) -> str:
    """Returns the likely name, also for `camelCase` and names of other queues; empty where none is similar."""
    import difflib

    plain = CAPITAL.sub("_", name).lower()
    for candidate in (plain, OTHER_WORDS.get(plain, "")):
        if candidate in names:
            return candidate
    return next(iter(difflib.get_close_matches(plain, names, n=1)), "")
