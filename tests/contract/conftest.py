"""The contract suite runs on every store; what the fake one cannot do is listed here, by name and with the reason."""

import pytest

from tests.stores import STORES, missing

NOT_ON_FAKEREDIS: dict[str, str] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kit" in metafunc.fixturenames:
        # A store that cannot be had is told once, by test_stores.py, and not again by every test.
        metafunc.parametrize("store", [name for name in STORES if not missing(name)], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.name.partition("[")[0]
        if "[fakeredis" in item.name and name in NOT_ON_FAKEREDIS:
            item.add_marker(pytest.mark.skip(reason=f"fakeredis: {NOT_ON_FAKEREDIS[name]}"))
