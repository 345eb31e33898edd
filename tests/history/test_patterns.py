"""Which errors are one pattern: the same fault with other names, numbers and places in it."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideq.persistence.dead_letters.patterns import MAX_LENGTH, normalised, pattern_of

ALIKE = {
    "numbers": ("attempt 3 of 5 failed after 1.5 s", "attempt 12 of 20 failed after 30 s"),
    "negative numbers": ("offset -5 is out of range", "offset 17 is out of range"),
    "large numbers": ("read 1,024,000 bytes", "read 7 bytes"),
    "numbers in words": ("worker7 lost shard12", "worker31 lost shard4"),
    "ids": (
        "task 01a1e36c-7fa5-7796-bba7-00fe0b2dfb4b is gone",
        "task 01890000-0000-7000-8000-000000000000 is gone",
    ),
    "upper-case ids": (
        "task 01A1E36C-7FA5-7796-BBA7-00FE0B2DFB4B is gone",
        "task 01890000-0000-7000-8000-000000000000 is gone",
    ),
    "addresses in memory": ("<Thing object at 0x7f8cac35be9d0>", "<Thing object at 0x7f396eba8b50>"),
    "digests": ("commit deadbeef01 not found", "commit 0123456789abcdef not found"),
    "URLs": ("GET https://a.example/x?y=1 gave 503", "GET http://b.example:8080/ gave 502"),
    "paths": ("no such file: /var/data/a.png", "no such file: /tmp/x/y/z.jpeg"),
    "hosts": ("connection to 10.0.0.1:5432 refused", "connection to 192.168.7.12 refused"),
    "mail addresses": ("bounced: ann@example.org", "bounced: bob.smith+x@mail.example.com"),
    "quoted texts": ("unknown column 'price'", "unknown column 'name of the rose'"),
    "double quotes": ('key "a" missing', 'key "b c" missing'),
    "times": ("deadline 12:30:01 passed", "deadline 9:05 passed"),
    "dates": ("not before 2026-01-02", "not before 2027-12-31"),
    "spaces": ("too   many\tspaces ", "too many spaces"),
    "all but the first line": ("boom\n  at line 1\n  at line 2", "boom\n  elsewhere"),
}
APART = {
    "words": ("connection refused", "connection reset"),
    "kinds of thing": ("no such file: /a/b", "no such key: 'a'"),
    "what follows": ("timeout after 3 s while reading", "timeout after 3 s while writing"),
    "words that are letters a-f": ("bad facade", "bad decade"),
    "names of errors": ("KeyError: 'a'", "ValueError: 'a'"),
    "nothing and something": ("", "boom"),
    "a word with digits and one without": ("utf8 expected", "utf expected"),
}


@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE)
def test_messages_that_differ_in_particulars_are_one_pattern(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(("one", "other"), APART.values(), ids=APART)
def test_messages_that_differ_in_substance_are_two_patterns(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)


def test_a_pattern_belongs_to_its_type_and_its_reason() -> None:
    names = {
        pattern_of(task_type, reason, "boom 1")
        for task_type in ("resize", "crop")
        for reason in ("discarded", "poison")
    }

    assert len(names) == 4
    assert pattern_of("resize", "poison", "boom 2") in names


def test_a_name_once_given_stays() -> None:
    """It is kept in history and in people's links."""
    assert pattern_of("resize", "poison", "boom at 0x7f8cac35be9d0") == "4856a7cb38df7e5d"


@given(st.text(max_size=3_000))
def test_a_message_once_normalised_is_short_one_line_and_stays_as_it_is(message: str) -> None:
    once = normalised(message)

    assert len(once) <= MAX_LENGTH
    assert "\n" not in once
    assert once == once.strip()


@pytest.mark.parametrize("piece", ["a", "1", "/a", "a.", "a@", "'", "-", "0x", "1.", "a1", " ", "f-"])
def test_no_message_takes_long(piece: str) -> None:
    """A worker may send 64 KiB of anything; compared with another of the same size, so that no machine is too slow."""
    plain, odd = "boom " * 13_000, piece * (65_000 // len(piece))
    began = time.process_time()
    for _ in range(20):
        normalised(plain)
    usual = time.process_time() - began
    began = time.process_time()
    for _ in range(20):
        normalised(odd)

    assert time.process_time() - began < 200 * usual
