"""Words a task is found by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideq.persistence.terms import (
    MAX_VALUE_LENGTH,
    MAX_WORD_LENGTH,
    MAX_WORDS,
    NO_ERROR,
    ErrorTerms,
    definition_terms,
    error_terms,
    parameter_term,
    read_error,
    tag_term,
)
from tideq.queue_core.task import Definition


def test_every_word_is_a_term_once_in_lower_case() -> None:
    assert error_terms("Timeout: GET /a-b TIMEOUT [7]") == [
        "error:timeout",
        "error:get",
        "error:a",
        "error:b",
        "error:7",
    ]


def test_words_of_any_language_are_words() -> None:
    assert error_terms("Überlauf у файле 文件") == ["error:überlauf", "error:у", "error:файле", "error:文件"]


@given(st.text(max_size=2_000), st.integers(0, 300))
def test_what_is_asked_for_is_found_in_what_was_written(text: str, start: int) -> None:
    """Asking for some of the words of a text gives terms that the text has, unless it has too many."""
    words = text.split()
    asked = " ".join(words[start % (len(words) or 1) :])

    if len(error_terms(text)) < MAX_WORDS:
        assert set(error_terms(asked)) <= set(error_terms(text))


def test_long_words_and_long_texts_are_bounded() -> None:
    terms = error_terms(" ".join([f"w{number}" * 100 for number in range(500)]))

    assert len(terms) == MAX_WORDS
    assert max(map(len, terms)) == len("error:") + MAX_WORD_LENGTH


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (b'{"message":"boom","code":"X","retriable":false,"details":{"a":[1]}}', ErrorTerms("boom", "X", False)),
        (b'{"message":"boom"}', ErrorTerms("boom", "", True)),
        (b"{}", NO_ERROR),
        (None, NO_ERROR),
        (b"", NO_ERROR),
        (b"not JSON", NO_ERROR),
        (b'"a text"', NO_ERROR),
        (b'{"message":7}', NO_ERROR),
        (b'{"message":null}', NO_ERROR),
        (b'{"details":%b}' % (b"[" * 60_000), NO_ERROR),
        (b'{"message":"\\ud800"}', NO_ERROR),
    ],
)
def test_an_error_nobody_can_read_is_found_by_nothing(document: bytes | None, error: ErrorTerms) -> None:
    assert read_error(document) == error


def test_a_tag_never_answers_for_a_parameter() -> None:
    definition = Definition("resize", b"{}", tags={"width": "7"}, searchable={"width": "7"})

    assert list(definition_terms(definition)) == [tag_term("width", "7"), parameter_term("resize", "width", "7")]
    assert tag_term("width", "7") != parameter_term("resize", "width", "7") != parameter_term("crop", "width", "7")


def test_a_long_parameter_is_found_by_its_beginning_whole_or_not() -> None:
    value = "x" * 1_000

    assert parameter_term("resize", "name", value) == parameter_term("resize", "name", value[:MAX_VALUE_LENGTH])


def test_a_plain_task_has_no_terms() -> None:
    assert list(definition_terms(Definition("resize", b"{}"))) == []
