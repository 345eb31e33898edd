"""Mistakes that passed every test once are found: the cheapest of them here, all by `make blind-spots`."""

import pytest

from tests.blind_spots.planted import CHEAPEST, MISTAKES, Copy


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("blind_spots"))


@pytest.mark.parametrize("name", CHEAPEST)
def test_a_mistake_that_was_not_seen_once_is_found(copy: Copy, name: str) -> None:
    assert copy.finds(MISTAKES[name])


def test_with_nothing_planted_the_same_tests_pass(copy: Copy) -> None:
    ended = copy.run(*(MISTAKES[name].test for name in CHEAPEST))

    assert ended.returncode == 0, ended.stdout
