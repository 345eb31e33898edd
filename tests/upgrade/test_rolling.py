"""This version and the one before it, side by side on the same stores, in both directions."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.upgrade.rolling import TREE, ShallowClone, baseline, problems_in, upgrade_and_back

URL, OTHER = "http://127.0.0.1:1", "http://127.0.0.1:2"


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


def submission(t0: int, t1: int, status: int = 0, asked: str = URL) -> dict[str, Any]:
    outcome = "ok" if 200 <= status < 300 else "info"
    return {
        "f": "submit",
        "t0": t0,
        "t1": t1,
        "type": outcome,
        "status": status,
        "problem": "ReadError",
        "asked": asked,
    }


def leave(*, is_polite: bool) -> list[dict[str, Any]]:
    """From 1000 to 2000."""
    return [
        {"f": "leaving", "t1": 1_000, "name": "api-1", "url": URL, "is_polite": is_polite},
        {"f": "left", "t1": 2_000, "name": "api-1", "code": 0},
    ]


@pytest.mark.parametrize(
    ("is_polite", "call", "is_failed"),
    [
        (False, submission(900, 1_100, 201), False),
        (False, submission(900, 1_100, 503), True),
        (False, submission(900, 1_100), False),
        (False, submission(1_500, 2_100), False),
        (True, submission(900, 1_100), True),
        (False, submission(900, 1_100, asked=OTHER), True),
        (False, submission(800, 900), True),
        (False, submission(2_100, 2_200), True),
    ],
)
def test_a_submission_without_an_answer_has_failed_unless_a_service_left_that_does_not_say_so(
    *, is_polite: bool, call: dict[str, Any], is_failed: bool
) -> None:
    assert len(problems_in([*leave(is_polite=is_polite), call])) == is_failed


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
