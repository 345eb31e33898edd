"""Lane signatures and worker profiles."""

import pytest

from tideq.queue_core.lanes import lane_signature, serves, task_type_of, worker_profile


def test_a_signature_does_not_depend_on_the_order_of_capabilities() -> None:
    orders = [["gpu", "a100", "gpu"], ["a100", "gpu"]]

    assert {lane_signature("train", order) for order in orders} == {"train|a100,gpu"}


@pytest.mark.parametrize(
    ("types", "capabilities", "signature", "expected"),
    [
        (None, [], "mail|", True),
        (None, [], "train|gpu", False),
        (None, ["gpu", "ssd"], "train|gpu", True),
        (["mail"], [], "mail|", True),
        (["mail"], [], "mailer|", False),
        (["mail", "train"], ["gpu"], "train|a100,gpu", False),
    ],
)
def test_a_worker_serves_its_types_where_it_has_the_capabilities(
    types: list[str] | None, capabilities: list[str], signature: str, expected: bool
) -> None:
    assert serves(worker_profile(types, capabilities), signature) is expected


def test_the_type_of_a_signature_is_its_first_part() -> None:
    assert task_type_of("train|a100,gpu") == "train"
