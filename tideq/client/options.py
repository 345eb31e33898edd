"""What a call has no option or filter for is refused, and the name that was probably meant is told.

Nothing is dropped in silence: who lists tasks by a filter that does not exist and cancels what comes, cancels all.
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

MEANT = {
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
"""What other queues say for it. Only read when a call is refused."""
CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def strict(kind: type[T]) -> type[T]:
    """A class whose public methods and constructor refuse what they do not know."""
    for name, method in [*vars(kind).items()]:
        if isinstance(method, types.FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, strict_call(method))
    return kind


def strict_call(function: Function) -> Function:
    """Knows what the signature names; of `**options: Unpack[Options]`, what `Options` names."""
    known = names_of(function)
    if not known:
        return function
    names = frozenset(known)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **options: Any) -> Any:
            if options and not names.issuperset(options):
                raise unknown(function, options, known)
            return await function(*args, **options)

        return typing.cast("Function", call_async)

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if options and not names.issuperset(options):
            raise unknown(function, options, known)
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
    """What may be given by name, `self` left out; None where that is anything."""
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


def unknown(function: Callable[..., Any] | type, given: Collection[str], known: Collection[str]) -> TypeError:
    first = next(name for name in given if name not in known)
    return TypeError(f"{function.__qualname__.removesuffix('.__init__')}() has no option {first!r}{hint(first, known)}")


def hint(name: str, known: Collection[str]) -> str:
    """What was probably meant, or else what there is."""
    if close := near(name, known):
        return f"; did you mean {close!r}?"
    return f"; it has {', '.join(map(repr, known))}"


def near(name: str, known: Collection[str]) -> str:
    """The name that was meant, `camelCase` and other queues' words included; empty where none is near."""
    import difflib

    plain = CAPITAL.sub("_", name).lower()
    for meant in (plain, MEANT.get(plain, "")):
        if meant in known:
            return meant
    return next(iter(difflib.get_close_matches(plain, known, n=1)), "")
