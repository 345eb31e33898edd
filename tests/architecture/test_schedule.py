"""The order of files names some of them, and names go stale."""

import pytest

from tests.architecture.maps import ROOT
from tests.schedule import LONG_FIRST, is_in, place


@pytest.mark.parametrize("name", LONG_FIRST)
def test_what_begins_early_exists_and_is_not_named_after_its_folder(name: str) -> None:
    assert (ROOT / name).exists()
    assert not any(is_in(name, earlier) for earlier in LONG_FIRST[: LONG_FIRST.index(name)])


def test_a_file_comes_before_the_rest_of_its_suite_and_what_is_not_named_last() -> None:
    ids = ["tests/lua/test_scripts.py::test", "tests/model/test_model.py::Test::test", f"{LONG_FIRST[0]}::test[1]"]

    assert sorted(ids, key=place) == ids[::-1]
