"""This version and the one before it, side by side on the same stores, in both directions."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.upgrade.rolling import TREE, NoBaseline, baseline, upgrade_and_back


def test_a_rolling_upgrade_and_the_way_back_lose_and_double_nothing() -> None:
    """The folder stays where something was broken."""
    folder = Path(tempfile.mkdtemp(prefix="upgrade-"))
    try:
        before = baseline(folder / "before")
    except NoBaseline as error:
        pytest.skip(f"the commit in tests/upgrade/BASELINE cannot be had: {error}")

    report, problems = upgrade_and_back(folder / "run", before, TREE)

    assert report.is_good, report.told()
    assert problems == []
    assert report.figures["tasks accepted"] > 100
    shutil.rmtree(folder)
