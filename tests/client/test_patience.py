"""How long a caller still waits, on a clock that the test moves."""

from tideq.client.retrying import Deadline


def test_it_ends_when_its_time_is_over() -> None:
    now = [100.0]
    patience = Deadline(45, now=lambda: now[0])

    polls = [patience.next_poll]
    for now[0] in (130.0, 144.95, 145.0, 200.0):
        polls.append(patience.next_poll)

    assert polls[:2] == [30, 15]
    assert 0 < polls[2] < 0.1
    assert polls[3:] == [0, 0]
    assert (patience.is_over, patience.left, patience.pause_seconds) == (True, 0, 0)


def test_without_an_end_it_lasts() -> None:
    patience = Deadline(None)

    assert (patience.left, patience.is_over, patience.next_poll) == (None, False, 30)
    assert patience.pause_seconds > 0
