"""How an exception becomes an error document, whatever the exception is like."""

import dataclasses
from typing import Any, NoReturn

import msgspec
import pytest

from tideq.workers.runtime.failures import Cancelled, Fail, InvalidArguments, Retry, error_document

MAX_ERROR_BYTES = 65_536
"""What the service takes."""


def document_of(error: BaseException) -> dict[str, Any]:
    return msgspec.json.decode(error_document(error))


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return raised


def test_any_exception_may_be_tried_again_and_keeps_its_whole_traceback() -> None:
    def deep() -> NoReturn:
        raise ZeroDivisionError("by zero")

    try:
        try:
            deep()
        except ZeroDivisionError as error:
            raise RuntimeError("cannot add up") from error
    except RuntimeError as error:
        document = document_of(error)

    assert (document["message"], document["code"], document["retriable"]) == ("cannot add up", "RuntimeError", True)
    traceback = document["details"]["traceback"]
    assert "in deep" in traceback
    assert "ZeroDivisionError: by zero" in traceback
    assert "The above exception was the direct cause" in traceback


@pytest.mark.parametrize(
    ("error", "code", "retriable"),
    [
        (Retry("busy", code="RATE_LIMIT"), "RATE_LIMIT", True),
        (Retry("busy"), "Retry", True),
        (Fail("never", code="NO_SUCH_USER"), "NO_SUCH_USER", False),
        (InvalidArguments("a", code="INVALID_ARGUMENTS"), "INVALID_ARGUMENTS", False),
        (Cancelled("off"), "Cancelled", True),
        (SystemExit(3), "SystemExit", True),
        (KeyboardInterrupt(), "KeyboardInterrupt", True),
    ],
)
def test_a_failure_says_what_kind_it_is(error: BaseException, code: str, retriable: bool) -> None:
    document = document_of(caught(error))

    assert (document["code"], document["retriable"]) == (code, retriable)
    assert document["message"]


def test_details_of_ones_own_are_kept_beside_the_traceback() -> None:
    document = document_of(caught(Fail("no", details={"host": "10.0.0.7"})))

    assert document["details"]["details"] == {"host": "10.0.0.7"}
    assert "Fail: no" in document["details"]["traceback"]


@dataclasses.dataclass
class Reading:
    mean: float


@pytest.mark.parametrize(
    ("details", "printed"),
    [
        ({"mean": float("nan")}, "{'mean': nan}"),
        ([1.0, float("inf"), None], "[1.0, inf, None]"),
        (Reading(float("-inf")), "Reading(mean=-inf)"),
        ({"host": object, "mean": float("nan")}, "{'host': <class 'object'>, 'mean': nan}"),
    ],
)
def test_details_with_a_number_that_json_has_not_are_printed_and_not_told_as_nothing(
    details: Any, printed: str
) -> None:
    assert document_of(caught(Fail("no", details=details)))["details"]["details"] == printed


def _endless() -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "details",
    [
        object(),
        {1: object()},
        _endless(),
        _nested(40),
        "\0",
        {"\0": "\ud800"},
        float("nan"),
        "x" * 100_000,
        2**70,
        b"\xff",
    ],
    ids=["object", "number key", "endless", "deep", "nul", "surrogate", "nan", "long", "big", "bytes"],
)
def test_details_that_cannot_be_told_never_spoil_the_report(details: Any) -> None:
    document = error_document(caught(Fail("no", details=details)))

    assert_takeable(document)
    assert msgspec.json.decode(document)["message"] == "no"


@pytest.mark.parametrize("letter", ["x", "é", "\0", "\ud800", "😀", "\x1b", "\n", '"'])
def test_no_message_is_too_long_or_too_strange_to_be_told(letter: str) -> None:
    document = error_document(caught(RuntimeError(letter * 50_000)))

    assert_takeable(document)
    assert msgspec.json.decode(document)["code"] == "RuntimeError"


def test_the_end_of_a_long_traceback_is_kept() -> None:
    def fall(depth: int) -> None:
        if depth:
            fall_on(depth - 1)
        raise RuntimeError("at the bottom")

    def fall_on(depth: int) -> None:
        fall(depth)

    with pytest.raises(RuntimeError) as thrown:
        fall(300)
    traceback = document_of(thrown.value)["details"]["traceback"]

    assert traceback.startswith("…")
    assert traceback.rstrip().endswith("RuntimeError: at the bottom")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


class NumberedFailure(Fail):
    def __init__(self) -> None:
        super().__init__("no")
        self.code = 404  # type: ignore[assignment]


def test_an_exception_that_cannot_be_put_into_words_is_told_by_its_name() -> None:
    document = document_of(caught(Unspeakable()))

    assert document["message"] == document["code"] == "Unspeakable"


def test_a_code_that_is_no_text_becomes_one() -> None:
    assert document_of(caught(NumberedFailure()))["code"] == "404"


def test_an_empty_message_is_the_exceptions_name() -> None:
    assert document_of(caught(ValueError()))["message"] == "ValueError"


def assert_takeable(document: bytes) -> None:
    """As the service's edge would have it."""
    from tideq.api.payloads import check_document, check_nesting, check_no_nul

    assert len(document) <= MAX_ERROR_BYTES
    check_no_nul("error", document)
    check_nesting(b'{"results":[{"error":' + document + b"}]}")
    check_document("error", document)
