"""Decodes a task's parameters into a handler's arguments, checked against its type hints before it runs."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, cast

import msgspec

from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.failures import InvalidArguments

Arguments = dict[str, Any]
Decode = Callable[[bytes], Any]
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class HandlerError(TypeError):
    """A function cannot be a handler; the message has the reason."""


def argument_decoder(function: Callable[..., Any]) -> tuple[Decode, str | None]:
    """A decoder from parameters to keyword arguments, and the name of the context argument; raises HandlerError."""
    hints, context_name, fields = _hints(function), None, list[Any]()
    rest: Any = None
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if _is_context(hint):
            context_name = parameter.name
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            rest = hint
        elif parameter.kind in NAMED:
            fields.append(_field(parameter, hint))
        else:
            raise HandlerError(f"{_name(function)}: parameters come by name, and {parameter} has none")
    try:
        decode = _closed_decoder(fields) if rest is None else _open_decoder(fields, rest)
        return _raising_invalid_arguments(decode), context_name
    except TypeError as error:
        raise HandlerError(f"{_name(function)}: {error}") from error


def payload_decoder(function: Callable[..., Any]) -> tuple[Decode, str | None]:
    """As `argument_decoder`, but the first argument receives all parameters as one value."""
    hints, parameters = _hints(function), list(inspect.signature(function).parameters)
    if not parameters:
        raise HandlerError(f"{_name(function)}: a worker function takes the payload as its first argument")
    try:
        decode = msgspec.json.Decoder(hints.get(parameters[0], Any)).decode
    except TypeError as error:
        raise HandlerError(f"{_name(function)}: {error}") from error
    context_name = next((name for name in parameters[1:] if _is_context(hints.get(name))), None)
    return _raising_invalid_arguments(lambda text: {parameters[0]: decode(text)}), context_name


def _field(parameter: inspect.Parameter, hint: Any) -> Any:
    if parameter.default is inspect.Parameter.empty:
        return (parameter.name, hint)
    return (parameter.name, hint, msgspec.field(default_factory=lambda: parameter.default))


def _closed_decoder(fields: list[Any]) -> Decode:
    kind = msgspec.defstruct("Parameters", fields, forbid_unknown_fields=True, kw_only=True)
    names, decode = kind.__struct_fields__, msgspec.json.Decoder(kind).decode

    def named(text: bytes) -> Arguments:
        values = decode(text)
        return {name: getattr(values, name) for name in names}

    return named


def _open_decoder(fields: list[Any], rest: Any) -> Decode:
    """For a function with `**kwargs`: extra parameters are checked against the type hint of `**kwargs`."""
    kind = msgspec.defstruct("Parameters", fields, kw_only=True)
    names = kind.__struct_fields__
    decode, decode_all = msgspec.json.Decoder(kind).decode, msgspec.json.Decoder(dict[str, Any]).decode

    def named_and_extra(text: bytes) -> Arguments:
        values = decode(text)
        extra = {name: _checked(name, value, rest) for name, value in decode_all(text).items() if name not in names}
        return extra | {name: getattr(values, name) for name in names}

    return named_and_extra


def _checked(name: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        raise msgspec.ValidationError(f"{problem} - at `$.{name}{place.rstrip('`')}`") from error


def _raising_invalid_arguments(decode: Decode) -> Decode:
    def checked(text: bytes) -> Any:
        try:
            return decode(text)
        except msgspec.DecodeError as error:
            raise InvalidArguments(str(error), code="INVALID_ARGUMENTS") from error

    return checked


def _is_context(hint: Any) -> bool:
    return hint is TaskContext or TaskContext in typing.get_args(hint)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a partial function are the hints of the wrapped function."""
    wrapped: Any = function
    while isinstance(wrapped, functools.partial):
        wrapped = cast("functools.partial[Any]", wrapped).func
    try:
        return typing.get_type_hints(wrapped, include_extras=True)
    except NameError as error:
        raise HandlerError(f"{_name(wrapped)}: {error}; a type hint must be importable") from error
