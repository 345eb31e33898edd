"""From a task's parameters to a handler's arguments, checked against its type hints before it runs."""

import inspect
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.failures import InvalidArguments

Arguments = dict[str, Any]
Decode = Callable[[bytes], Any]
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class HandlerError(TypeError):
    """A function cannot be a handler; the message says why."""


def argument_decoder(function: Callable[..., Any]) -> tuple[Decode, str | None]:
    """How parameters become keyword arguments, and the name of the argument that takes the context, if any."""
    hints, context_name, fields = _hints(function), None, list[Any]()
    is_open = False
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is TaskContext:
            context_name = parameter.name
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            is_open = True
        elif parameter.kind in NAMED:
            fields.append(_field(parameter, hint))
        else:
            raise HandlerError(f"{function.__qualname__}: parameters come by name, and {parameter} takes none")
    if is_open:
        return _open_decoder(fields), context_name
    kind = msgspec.defstruct("Parameters", fields, forbid_unknown_fields=True)
    names = kind.__struct_fields__
    decode = msgspec.json.Decoder(kind).decode
    return _explained(
        lambda text: {name: getattr(value, name) for value in (decode(text),) for name in names}
    ), context_name


def payload_decoder(function: Callable[..., Any]) -> tuple[Decode, str | None]:
    """The parameters whole, as the type of the first argument; a second one may take the context."""
    hints, parameters = _hints(function), list(inspect.signature(function).parameters)
    if not parameters:
        raise HandlerError(f"{function.__qualname__}: a worker function takes the payload")
    decode = msgspec.json.Decoder(hints.get(parameters[0], Any)).decode
    context_name = next((name for name in parameters[1:] if hints.get(name) is TaskContext), None)
    return _explained(lambda text: {parameters[0]: decode(text)}), context_name


def _field(parameter: inspect.Parameter, hint: Any) -> Any:
    if parameter.default is inspect.Parameter.empty:
        return (parameter.name, hint)
    return (parameter.name, hint, msgspec.field(default_factory=lambda: parameter.default))


def _open_decoder(fields: list[Any]) -> Decode:
    """A function that takes anything by name gets what its hints name checked, and the rest as it is."""
    kind = msgspec.defstruct("Parameters", fields)
    names = kind.__struct_fields__
    decode, decode_all = msgspec.json.Decoder(kind).decode, msgspec.json.Decoder(dict[str, Any]).decode

    def both(text: bytes) -> Arguments:
        known = decode(text)
        return decode_all(text) | {name: getattr(known, name) for name in names}

    return _explained(both)


def _explained(decode: Decode) -> Decode:
    def checked(text: bytes) -> Any:
        try:
            return decode(text)
        except msgspec.ValidationError as error:
            raise InvalidArguments(str(error), code="INVALID_ARGUMENTS") from error

    return checked


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise HandlerError(f"{function.__qualname__}: {error}; a type hint must be importable") from error
