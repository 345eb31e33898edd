"""Which stores this suite ran on."""

import pytest

from tests.stores import STORES, missing


@pytest.mark.parametrize("name", STORES)
def test_the_contract_is_checked_on_this_store(name: str) -> None:
    if reason := missing(name):
        pytest.skip(reason)
