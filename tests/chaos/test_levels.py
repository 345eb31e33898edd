"""How a run is chosen, and that what a broken one prints chooses it again."""

import pytest

from tests.chaos.levels import LONG, SMOKE, chosen


def test_without_any_wish_it_is_the_long_run() -> None:
    assert chosen({}) == LONG


def test_what_a_run_prints_chooses_the_same_run_again() -> None:
    wishes = {
        "CHAOS_LEVEL": "smoke",
        "CHAOS_SECONDS": "12.5",
        "CHAOS_FAULT_SECONDS": "3",
        "CHAOS_WITHOUT": "valkey_wiped, failed_over",
    }

    level = chosen(wishes)
    again = chosen(dict(word.split("=") for word in level.variables.split()))

    assert again == level
    assert (level.seconds, level.fault_seconds) == (12.5, 3.0)
    assert SMOKE.profile.keys() - level.profile.keys() == {"valkey_wiped", "failed_over"}


@pytest.mark.parametrize(
    ("wishes", "named"),
    [
        ({"CHAOS_LEVEL": "loud"}, "'loud'; there are smoke, long, soak"),
        ({"CHAOS_WITHOUT": "kill,sharks"}, "'sharks'; there are kill, "),
        ({"CHAOS_SECONDS": "ten"}, "ten"),
    ],
)
def test_a_wish_that_means_nothing_is_named(wishes: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        chosen(wishes)
