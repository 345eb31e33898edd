"""A written map drifts, so these are compared with what they show."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture.maps import MAPS, ROOT, drawn

WITH_README = ("queue_core", "persistence")


@pytest.mark.parametrize(("place", "draw"), MAPS.items(), ids=["-".join(place) for place in MAPS])
def test_a_map_shows_what_the_code_says(place: tuple[str, str], draw: Callable[[], str]) -> None:
    file, name = place
    text = (ROOT / file).read_text()

    assert text == drawn(text, name, draw()), "run `make maps`"


def test_the_readme_names_every_folder_and_only_those() -> None:
    table = re.findall(r"^\| `(\w+)/` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = {path.partition("/")[0] for path in tracked if "/" in path and not path.startswith(".")}

    assert set(table) == folders


def test_pages_about_the_tree_link_only_to_what_exists() -> None:
    roots = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md")
    for readme in (*roots, *(ROOT / each / "README.md" for each in WITH_README)):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", readme.read_text()):
            assert (readme.parent / target).exists(), f"{readme.name}: {target}"


def test_ci_runs_what_the_readme_tells_people_to_run() -> None:
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if not line.startswith(("#", "set "))]

    assert commands == ["make test"]
    assert "make test" in (ROOT / "README.md").read_text()


def test_nothing_names_a_place_on_somebodys_machine() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in tracked:
        path = Path(ROOT / name)
        if path.is_file() and path.suffix in {".py", ".md", ".lua", ".toml", ".yaml"}:
            assert not re.search(r"/(root|home)/\w", path.read_text()), name
