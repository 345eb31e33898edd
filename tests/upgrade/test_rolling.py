"""This version and the one before it, side by side on the same stores, in both directions."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.upgrade.rolling import TREE, ShallowClone, baseline, problems_in, upgrade_and_back


def test_a_rolling_upgrade_and_the_way_back_lose_and_double_nothing() -> None:
    """The folder stays where something was broken."""
    folder = Path(tempfile.mkdtemp(prefix="upgrade-"))
    try:
        before = baseline(folder / "before")
    except ShallowClone as error:
        pytest.skip(str(error))

    report, problems = upgrade_and_back(folder / "run", before, TREE)

    assert report.is_good, report.told()
    assert problems == []
    assert report.figures["tasks accepted"] > 100
    shutil.rmtree(folder)


@pytest.mark.parametrize(("status", "is_problem"), [(201, False), (503, True), (0, True)])
def test_a_submission_that_is_refused_or_not_answered_has_failed(status: int, *, is_problem: bool) -> None:
    outcome = "ok" if status == 201 else "info"
    call = {"f": "submit", "type": outcome, "status": status, "problem": "ReadError", "asked": "http://127.0.0.1:1"}

    assert len(problems_in([call])) == is_problem


@pytest.mark.parametrize("is_shallow", [False, True])
def test_a_baseline_that_cannot_be_had_fails_the_run_but_in_a_shallow_clone(
    tmp_path: Path, *, is_shallow: bool
) -> None:
    def git(*words: str) -> None:
        named = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        subprocess.run(["git", *named, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "from").mkdir()
    git("-C", "from", "init")
    for _ in range(2):
        git("-C", "from", "commit", "--allow-empty", "--message", "any")
    git("clone", *(("--depth", "1") if is_shallow else ()), f"file://{tmp_path}/from", "to")

    with pytest.raises(LookupError) as caught:
        baseline(tmp_path / "before", "0" * 40, tmp_path / "to")

    assert isinstance(caught.value, ShallowClone) is is_shallow
