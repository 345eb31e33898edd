"""The check of nesting against a slow reference that reads a document for what it is."""

import json
import random
from typing import Any

import pytest

from tideq.api.edge.body import MAX_NESTING, check_nesting
from tideq.api.edge.problems import BadRequest

TEXTS = ("", "a[", '"', "\\", '\\"', "[[[", "]", "{}\\\\", 'x"[', "\n[", "\u2028{")


def document(random_source: random.Random, depth: int) -> Any:
    kind = random_source.random()
    if depth == 0 or kind < 0.3:
        return random_source.choice((*TEXTS, 1, None))
    inside = [document(random_source, depth - 1) for _ in range(random_source.randint(0, 5))]
    if kind < 0.65:
        return inside
    return {random_source.choice(TEXTS) + str(number): value for number, value in enumerate(inside)}


def depth_of(value: Any) -> int:
    if isinstance(value, (list, dict)):
        inside: Any = value.values() if isinstance(value, dict) else value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return 1 + max(map(depth_of, inside), default=0)
    return 0


def is_accepted(body: bytes) -> bool:
    try:
        check_nesting(body)
    except BadRequest:
        return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_a_document_is_refused_exactly_when_it_nests_too_deep(seed: int) -> None:
    random_source = random.Random(seed)
    for _ in range(100):
        value = document(random_source, random_source.choice((2, 5, 8)))
        for _ in range(random_source.choice((0, 24, 28, 31, 32, 33))):
            value = [value] if random_source.random() < 0.5 else {"[": value}

        assert is_accepted(json.dumps(value).encode()) == (depth_of(value) <= MAX_NESTING)


def test_a_long_document_is_judged_like_a_short_one() -> None:
    value: Any = [list(TEXTS), {"{": TEXTS[3]}] * 5_000

    for _ in range(MAX_NESTING - depth_of(value)):
        value = [value]

    assert is_accepted(json.dumps(value).encode())
    assert not is_accepted(json.dumps([value]).encode())


@pytest.mark.parametrize("filling", [b'"', b'"["', b'"[[" [[', b"\\", b"[", b"[]", b"[{}", b'\\"'])
def test_a_body_of_nothing_but_marks_is_judged_without_a_list_of_them(filling: bytes) -> None:
    assert not is_accepted(b"[{" * 40 + filling * (2**20 // len(filling)))
