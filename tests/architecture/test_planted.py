"""Planted mistakes go stale: code that is written anew no longer says what a mistake would change.

Most lists of them are run by hand and take long, so what they name is looked up here, in every run.
"""

from typing import NamedTuple

import pytest

from tests.architecture.maps import ROOT
from tests.blind_spots.planted import MISTAKES as BLIND_SPOTS
from tests.chaos.planted import MISTAKES as CHAOS
from tests.model.test_planted_bugs import MISTAKES as MODEL
from tests.upgrade.planted import CHANGES as UPGRADE
from tideq.queue_core.engine.scripts import assemble


class Planting(NamedTuple):
    place: str
    """A file's path, or the name of a script, which is meant with all it includes."""
    right: str
    wrong: str


PLANTED: dict[str, list[Planting]] = {
    **{f"chaos: {name}": [Planting(each.path, each.right, each.wrong)] for name, each in CHAOS.items()},
    **{f"upgrade: {name}": [Planting(*edit) for edit in edits] for name, edits in UPGRADE.items()},
    **{f"blind spots: {name}": [Planting(*edit) for edit in each.edits] for name, each in BLIND_SPOTS.items()},
    **{
        f"model: {name}": [Planting(script, each.right, each.wrong) for script in each.found_in]
        for name, each in MODEL.items()
    },
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_tree_says_once_what_a_planted_mistake_would_change(name: str) -> None:
    """Where it says so more often, more than the mistake would be planted."""
    texts: dict[str, str] = {}
    for place, right, wrong in PLANTED[name]:
        text = texts.get(place) or _text(place)
        assert text.count(right) == 1, f"{place} says {right!r} {text.count(right)} times: plant this mistake anew"
        texts[place] = text.replace(right, wrong)
        assert texts[place] != text


@pytest.mark.parametrize("name", BLIND_SPOTS)
def test_the_test_that_must_find_a_blind_spot_exists(name: str) -> None:
    path, *parts = BLIND_SPOTS[name].test.split("::")
    text = (ROOT / path).read_text()

    for part in parts:
        assert f"def {part}(" in text or f"class {part}:" in text, f"{path} has no {part}"


def _text(place: str) -> str:
    return (ROOT / place).read_text() if "." in place else assemble(place).text
