"""Which part of a drain a rate is read off."""

from bench.peers.samples import Point, is_over, window


def points(*left: int) -> list[Point]:
    return [Point(float(at), count, {}) for at, count in enumerate(left)]


def ends(*left: int) -> tuple[float, float]:
    first, last = window(points(*left))
    return first.at, last.at


def test_neither_the_beginning_nor_an_empty_queue_counts() -> None:
    assert ends(1_000, 990, 940, 500, 20, 0) == (2.0, 4.0)


def test_a_drain_that_is_cut_short_counts_to_its_last_look() -> None:
    assert ends(1_000, 900, 800, 700) == (1.0, 3.0)


def test_a_drain_that_was_over_before_two_looks_counts_as_a_whole() -> None:
    assert ends(1_000, 0) == (0.0, 1.0)
    assert ends(1_000, 400, 0) == (0.0, 2.0)


def test_a_drain_in_batches_counts_as_a_whole_when_no_look_saw_one_end() -> None:
    assert ends(4_000, 4_000, 2_000, 2_000) == (0.0, 3.0)


def test_a_drain_is_over_so_long_after_its_first_task_was_done() -> None:
    assert not is_over(points(1_000, 1_000, 1_000, 900, 800), 2.0)
    assert is_over(points(1_000, 1_000, 1_000, 900, 800, 700), 2.0)
    assert is_over(points(1_000, 50), 2.0)
    assert not is_over(points(1_000, 1_000, 1_000, 1_000), 2.0), "it has yet to begin"
