"""Alert rules: each fires when it should and not a step before, and says where to read on."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.observability.alert_cases import CASES, Series
from tests.observability.promtool import ALERTS, ROOT, needs_promtool, promtool, unit_test
from tests.observability.rules import Rule, all_rules

RULES = all_rules()
UNSEEN = "TideQNotSeen"
"""Of no queue: it is about nothing being told at all."""
RUNBOOK = "https://tideq.dev/docs/runbook.md"
"""The chart puts an operator's own page in its place."""
SEVERITIES = {"critical", "warning", "info"}


def test_every_alert_is_tried() -> None:
    assert sorted(CASES) == sorted(rule.alert for rule in RULES)


@needs_promtool
def test_the_rules_are_well_formed() -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", str(ALERTS))

    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs_promtool
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    """Each case is a queue of its own, so this also shows that what one queue does is not held against another."""
    scenes = [_scene(alert, fires=True) for alert in CASES if alert != UNSEEN]
    scenes += [_scene(alert, fires=False) for alert in CASES]

    tested = unit_test(tmp_path, [_together(scenes), _together([_scene(UNSEEN, fires=True)])])

    assert tested.returncode == 0, (tested.stdout + tested.stderr).decode()


@needs_promtool
def test_a_case_that_says_the_opposite_is_noticed(tmp_path: Path) -> None:
    """Else the test above would pass whatever the rules say."""
    scene = _scene("TideQNoActiveWorkers", fires=False)._replace(fires=True)

    tested = unit_test(tmp_path, [_together([scene])])

    assert tested.returncode != 0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alert)
def test_an_alert_leads_to_its_entry_in_the_runbook(rule: Rule) -> None:
    page, _, anchor = rule.annotations["runbook_url"].partition("#")
    headings = re.findall(r"^### (.+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)

    assert page == RUNBOOK, "Alertmanager takes anything but a whole URL for a page of its own"
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}
    assert rule.annotations["summary"]
    assert rule.annotations["description"]
    assert rule.severity in SEVERITIES


def test_the_runbook_has_no_entry_for_what_does_not_alert() -> None:
    entries = re.findall(r"^### (.+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    anchors = {rule.annotations["runbook_url"].partition("#")[2] for rule in RULES}

    assert {entry.lower().replace(" ", "-") for entry in entries} == anchors
    assert len(entries) == len(anchors)


class Scene(NamedTuple):
    alert: str
    queue: str
    series: Series
    at_minutes: int
    fires: bool


def _scene(alert: str, *, fires: bool) -> Scene:
    case = CASES[alert]
    queue = f"{alert}-{'fires' if fires else 'quiet'}"
    return Scene(alert, queue, case.fires if fires else case.quiet, case.at_minutes, fires)


def _together(scenes: list[Scene]) -> dict[str, object]:
    return {
        "interval": "1m",
        "input_series": [
            {"series": _of_queue(scene.queue, name), "values": values}
            for scene in scenes
            for name, values in scene.series.items()
        ],
        "promql_expr_test": [_expectation(scene) for scene in scenes],
    }


def _expectation(scene: Scene) -> dict[str, object]:
    queue = "" if scene.alert == UNSEEN else f', queue="{scene.queue}"'
    firing = f'count(ALERTS{{alertname="{scene.alert}", alertstate="firing"{queue}}}) or vector(0)'
    expected = [{"labels": "{}", "value": int(scene.fires)}]
    return {"expr": firing, "eval_time": f"{scene.at_minutes}m", "exp_samples": expected}


def _of_queue(queue: str, series: str) -> str:
    """As it is told: every series carries the queue's name."""
    name, brace, labels = series.partition("{")
    return f'{name}{{queue="{queue}", {labels}' if brace else f'{name}{{queue="{queue}"}}'
