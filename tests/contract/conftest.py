"""The contract suite runs on every store that can be had; what cannot is told once, by test_stores.py."""

import pytest

from tests.stores import STORES, missing


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kit" in metafunc.fixturenames:
        metafunc.parametrize("store", [name for name in STORES if not missing(name)], indirect=True)
