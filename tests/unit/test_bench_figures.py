"""What `tideq bench` makes of what its processes tell."""

import pytest

from tideq.cli.benchmark.figures import at, number, seconds_until, times
from tideq.cli.benchmark.plan import quantities, quantity


def test_the_time_runs_to_the_task_that_makes_up_the_number() -> None:
    moments = {10_100: 5, 10_500: 5, 19_000: 90}

    assert seconds_until(10, 10.0, moments) == pytest.approx(0.5)
    assert seconds_until(5, 10.0, moments) == pytest.approx(0.1)
    assert seconds_until(100, 10.0, moments) == pytest.approx(9.0)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    ordered = [float(value) for value in range(1, 101)]

    assert [at(ordered, share) for share in (1, 50, 95, 99, 100)] == [1, 50, 95, 99, 100]
    assert at([7.0], 1) == 7.0
    assert times([]) is None


def test_quantities_are_read_as_people_write_them() -> None:
    assert quantities("--depth", ["1M", "10k", "500"]) == (500, 10_000, 1_000_000)
    assert quantity("--payload", "0.1kB") == 100
    with pytest.raises(ValueError, match="is not a number"):
        quantity("--tasks", "-1")


def test_numbers_are_rounded_to_what_a_run_is_good_for() -> None:
    assert [number(value) for value in (0.12345, 9.876, 123.4, 12_345.6)] == ["0.123", "9.88", "123", "12,300"]
