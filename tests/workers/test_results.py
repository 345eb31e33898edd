"""What a handler returned is written as it is, or refused by name."""

import dataclasses
import enum

import pytest

from tideq.workers.runtime.failures import Fail
from tideq.workers.runtime.results import encode_result


@dataclasses.dataclass
class Reading:
    mean: float


class Limit(enum.Enum):
    NONE = float("inf")


@pytest.mark.parametrize(
    "value",
    [float("nan"), {"mean": [1.0, float("inf")]}, (float("-inf"),), [Reading(float("nan"))], {"limit": Limit.NONE}],
)
def test_a_number_that_json_has_not_is_an_invalid_result(value: object) -> None:
    with pytest.raises(Fail) as caught:
        encode_result(value)

    assert caught.value.code == "INVALID_RESULT"


def test_none_and_words_that_look_like_it_are_results() -> None:
    assert encode_result({"a": None, "b": "null"}) == b'{"a":null,"b":"null"}'
