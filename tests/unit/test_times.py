"""Times as people say them."""

import pytest

from tideq.api.schemas.times import in_words

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (-5, "0 seconds"),
        (999, "0 seconds"),
        (SECOND, "1 second"),
        (90 * SECOND, "1 minute 30 seconds"),
        (2 * HOUR, "2 hours"),
        (DAY + 5 * MINUTE, "1 day"),
        (99_666_902_100, "3 years 58 days"),
    ],
)
def test_a_time_is_told_in_its_largest_unit_and_the_next(milliseconds: int, words: str) -> None:
    assert in_words(milliseconds) == words
