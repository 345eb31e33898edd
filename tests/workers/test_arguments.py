"""From parameters to arguments: what is accepted, and what a refusal says."""

import dataclasses
import datetime
import enum
import functools
import uuid
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest

from tideq.workers.runtime.arguments import HandlerError, argument_decoder, payload_decoder
from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.failures import InvalidArguments
from tideq.workers.runtime.handlers import Handler

Json = dict[str, Any]


class Size(msgspec.Struct):
    width: int
    height: int = 480


@dataclasses.dataclass
class Crop:
    size: Size
    at: datetime.datetime


class Colour(enum.Enum):
    RED = "red"


def plain(a: int, b: int = 2, *, c: str | None = None) -> None: ...
def nested(crop: Crop, sizes: list[Size]) -> None: ...
def rich(when: datetime.datetime, by: uuid.UUID, colour: Colour) -> None: ...
def meta(percent: Annotated[int, msgspec.Meta(ge=0, le=100)]) -> None: ...
def keywords_only(*, a: int = 1, b: int) -> None: ...
def open_ended(a: int, **rest: Any) -> None: ...
def open_numbers(a: int, **rest: int) -> None: ...
def with_context(a: int, ctx: TaskContext) -> None: ...
def with_optional_context(a: int, ctx: TaskContext | None = None) -> None: ...
def open_with_context(ctx: TaskContext, **rest: Any) -> None: ...


def decoded(function: Callable[..., Any], parameters: Json) -> Json:
    return argument_decoder(function)[0](msgspec.json.encode(parameters))


def refused(function: Callable[..., Any], parameters: Json) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        decoded(function, parameters)
    return caught.value


def test_arguments_are_those_the_function_names_with_its_defaults() -> None:
    assert decoded(plain, {"a": 1}) == {"a": 1, "b": 2, "c": None}
    assert decoded(plain, {"a": 1, "b": 5, "c": "x"}) == {"a": 1, "b": 5, "c": "x"}


def test_structs_dataclasses_and_instants_are_made_however_deep() -> None:
    crop = {"size": {"width": 3}, "at": "2026-03-02T09:15:00Z"}

    arguments = decoded(nested, {"crop": crop, "sizes": [{"width": 1, "height": 2}]})

    at = datetime.datetime(2026, 3, 2, 9, 15, tzinfo=datetime.UTC)
    assert arguments == {"crop": Crop(Size(3), at), "sizes": [Size(1, 2)]}


def test_instants_ids_and_enums_are_made_from_their_text() -> None:
    key = uuid.uuid4()

    arguments = decoded(rich, {"when": "2026-03-02T09:15:00Z", "by": str(key), "colour": "red"})

    assert arguments["when"].tzinfo is not None
    assert (arguments["by"], arguments["colour"]) == (key, Colour.RED)


@pytest.mark.parametrize(
    ("function", "parameters", "named"),
    [
        (plain, {"a": "one"}, "`$.a`"),
        (plain, {"a": 1, "b": None}, "`$.b`"),
        (plain, {}, "`a`"),
        (plain, {"a": 1, "colour": 3}, "`colour`"),
        (
            nested,
            {"crop": {"size": {"width": "wide"}, "at": "2026-03-02T09:15:00Z"}, "sizes": []},
            "`$.crop.size.width`",
        ),
        (nested, {"crop": {"size": {"width": 1}, "at": "yesterday"}, "sizes": []}, "`$.crop.at`"),
        (rich, {"when": "2026-03-02T09:15:00Z", "by": "me", "colour": "red"}, "`$.by`"),
        (meta, {"percent": 101}, "`$.percent`"),
        (keywords_only, {"a": 1}, "`b`"),
        (open_ended, {"a": "x", "z": 1}, "`$.a`"),
        (open_ended, {"z": 1}, "`a`"),
        (open_numbers, {"a": 1, "z": "x"}, "`$.z`"),
    ],
)
def test_a_refusal_names_the_argument(function: Callable[..., Any], parameters: Json, named: str) -> None:
    refusal = refused(function, parameters)

    assert named in str(refusal)
    assert refusal.code == "INVALID_ARGUMENTS"
    assert not refusal.is_retriable


def test_a_function_without_hints_takes_anything() -> None:
    untyped: Callable[..., Any] = eval("lambda a, b=1: None")  # noqa: S307

    assert decoded(untyped, {"a": [1, {"x": None}]}) == {"a": [1, {"x": None}], "b": 1}


def test_arguments_by_name_only_may_have_defaults_in_any_order() -> None:
    assert decoded(keywords_only, {"b": 2}) == {"a": 1, "b": 2}


def test_what_an_open_function_does_not_name_comes_as_it_is() -> None:
    assert decoded(open_ended, {"a": 1, "z": {"y": 2}}) == {"a": 1, "z": {"y": 2}}
    assert decoded(open_numbers, {"a": 1, "z": 2}) == {"a": 1, "z": 2}


@pytest.mark.parametrize("function", [with_context, with_optional_context])
def test_a_context_is_no_parameter(function: Callable[..., Any]) -> None:
    decode, name = argument_decoder(function)

    assert name == "ctx"
    assert decode(b'{"a":1}') == {"a": 1}
    assert "`ctx`" in str(refused(function, {"a": 1, "ctx": {}}))


def test_a_parameter_cannot_pose_as_the_context() -> None:
    handler, context = Handler("t", open_with_context), object()

    assert handler.arguments(b'{"ctx":"mine","x":1}', context) == {"ctx": context, "x": 1}


def test_mutable_defaults_are_the_functions_own() -> None:
    default: list[int] = []

    def function(a: list[int] = default) -> None: ...

    assert decoded(function, {})["a"] is default


@pytest.mark.parametrize("parameters", [b"[]", b"1", b'"x"', b"null"])
def test_parameters_that_are_no_object_are_refused(parameters: bytes) -> None:
    with pytest.raises(InvalidArguments):
        argument_decoder(plain)[0](parameters)


def test_a_function_that_takes_arguments_by_place_cannot_be_a_handler() -> None:
    def by_place(a: int, /) -> None: ...
    def many(*numbers: int) -> None: ...

    for function in (by_place, many):
        with pytest.raises(HandlerError, match=f"{function.__name__}.*by name"):
            argument_decoder(function)


def test_a_hint_that_cannot_be_found_is_named() -> None:
    def lost(a: int) -> None: ...

    lost.__annotations__["a"] = "Nowhere"

    with pytest.raises(HandlerError, match=r"lost.*Nowhere"):
        argument_decoder(lost)


def test_a_hint_that_cannot_be_checked_is_refused_when_the_handler_is_made() -> None:
    def torn(a: Size | Other) -> None: ...

    with pytest.raises(HandlerError, match="torn"):
        argument_decoder(torn)


class Other(msgspec.Struct):
    width: int


def test_a_partial_function_can_be_a_handler() -> None:
    handler = Handler("t", functools.partial(plain, b=7))

    assert handler.mode == "thread"
    assert handler.arguments(b'{"a":1}', None)["a"] == 1


def test_a_payload_comes_whole_as_the_type_of_the_first_argument() -> None:
    def crop(what: Crop, ctx: TaskContext) -> None: ...

    decode, name = payload_decoder(crop)

    assert name == "ctx"
    assert decode(b'{"size":{"width":1},"at":"2026-03-02T09:15:00Z"}')["what"].size == Size(1)
    with pytest.raises(InvalidArguments, match=r"\$\.size"):
        decode(b'{"size":1,"at":"2026-03-02T09:15:00Z"}')


def test_a_payload_needs_somebody_who_takes_it() -> None:
    def nothing() -> None: ...

    with pytest.raises(HandlerError, match="takes the payload"):
        payload_decoder(nothing)
