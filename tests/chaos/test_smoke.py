"""A short run with everything in it, in the order of a fixed seed. What it shows at length is `make chaos`."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.chaos.levels import SMOKE
from tests.chaos.run import run

SEEDS = (7,)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_promised_is_broken_under_fire(seed: int) -> None:
    """The folder stays where something was broken; pytest would clear away its own."""
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-"))

    report = run(SMOKE, seed, folder)

    assert report.is_good, report.told()
    assert report.figures["tasks accepted"] > 200
    assert report.figures["kills"] >= 3
    shutil.rmtree(folder)
