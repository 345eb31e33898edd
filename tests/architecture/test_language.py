"""One language: private words, names used twice, long files and libraries' insides are found, here and when planted."""

import pytest

from tests.architecture.language import (
    MAX_LINES,
    SIDES,
    WORDS,
    class_names,
    defined_names,
    docs,
    module_names,
    names_used_twice,
    others_insides,
    private_words,
    product_sources,
    side_of,
    too_long,
)

INSIDES_WE_NEED: dict[str, str] = {}
"""Private names of libraries, each with the reason; three at most."""

SYSTEM_USER = "tideq/embedded/postgres_identity.py"
"""Names the system user `nobody`."""


def test_no_private_word_is_in_code_or_docs() -> None:
    texts = product_sources(".py", ".lua", ".sql", ".ts", ".tsx") | docs()
    found = [
        f"{place}:{line}: {word} (say: {WORDS[word]})"
        for place, text in texts.items()
        if place != SYSTEM_USER
        for line, word in private_words(text)
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize("side", SIDES)
def test_no_class_name_is_used_twice(side: str) -> None:
    own = {
        place: text
        for place, text in product_sources(".py").items()
        if side_of(place) == side and "_sync/" not in place
    }

    assert not names_used_twice(class_names(own))


@pytest.mark.parametrize("side", SIDES)
def test_no_module_name_is_used_twice(side: str) -> None:
    own = [place for place in product_sources(".py") if side_of(place) == side]

    assert not names_used_twice(module_names(own))


def test_no_file_is_too_long_to_read() -> None:
    long = [place for place, text in product_sources(".py", ".lua", ".ts", ".tsx").items() if too_long(text)]

    assert not long


def test_libraries_are_used_by_what_they_promise() -> None:
    sources = product_sources(".py")
    own_names = defined_names(sources.values())
    found = {
        (place, name)
        for place, source in sources.items()
        for _, name in others_insides(source, own_names)
        if name not in INSIDES_WE_NEED
    }

    assert len(INSIDES_WE_NEED) <= 3
    assert not found


@pytest.mark.parametrize(
    "text", ["# whoever is told", "def _hear_what_was_asked(): ...", "class StoreCustody: ...", "is_heard = 1"]
)
def test_a_private_word_that_is_planted_is_found(text: str) -> None:
    assert list(private_words(text))


def test_a_class_of_a_name_that_exists_is_found() -> None:
    assert names_used_twice(class_names({"a.py": "class Answer: ...", "b.py": "class Answer: ..."})) == {
        "Answer": ["a.py", "b.py"]
    }


def test_a_module_of_a_name_that_exists_is_found_unless_folders_mirror_each_other() -> None:
    places = ["queue_core/queue.py", "persistence/queue.py", "api/routes/tasks.py", "api/schemas/tasks.py"]

    assert names_used_twice(module_names(places)) == {"queue": places[:2]}


def test_a_file_of_one_line_too_many_is_found() -> None:
    assert too_long("x = 1\n" * (MAX_LINES + 1))
    assert not too_long("x = 1\n" * MAX_LINES)


@pytest.mark.parametrize(
    "source",
    ["pool._available_connections", "from redis._parsers import BaseParser", "from opentelemetry.sdk import _logs"],
)
def test_an_inside_of_a_library_that_is_planted_is_found(source: str) -> None:
    assert list(others_insides(source, {"_own"}))


def test_a_private_name_of_our_own_is_no_librarys() -> None:
    assert not list(others_insides("self._own", {"_own"}))
