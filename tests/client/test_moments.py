"""Times as people type them."""

from datetime import UTC, datetime, timedelta

import pytest

from tideq.cli.time_args import duration, moment

NOW = datetime(2026, 3, 2, 9, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("1h30m", 5_400), ("7d", 604_800), ("2w", 1_209_600), ("0.5h", 1_800)],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "-3s", "5x", "1h30", "h", "1 h"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration(text)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("24h", NOW - timedelta(days=1)),
        ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T02:00:00+02:00", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_moment_is_an_instant_or_so_long_ago(text: str, instant: datetime) -> None:
    assert moment(text, NOW) == instant


def test_a_moment_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="neither an instant"):
        moment("tomorrow", NOW)
