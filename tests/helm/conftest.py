"""Without Helm most of this cannot be shown, and each test says so."""

from pathlib import Path

import pytest

from tests.helm.chart import HELM, NO_HELM

HERE = Path(__file__).parent
WITHOUT_HELM = {"test_values.py", "test_commands.py", "test_adoption.py", "test_image.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HELM is None and item.path.parent == HERE and item.path.name not in WITHOUT_HELM:
            item.add_marker(pytest.mark.skip(reason=NO_HELM))
