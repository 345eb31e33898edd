"""The Grafana dashboard: well formed, its queries parse, nothing overlaps. Whether it pleases only Grafana shows."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tests.observability.dashboard import document, expressions, panels
from tests.observability.promtool import needs_promtool, promtool

ROWS = ["Queue health", "Worker pool", "Task flow", "Errors", "Performance"]


def test_the_dashboard_has_the_parts_it_should() -> None:
    assert [panel["title"] for panel in panels() if panel["type"] == "row"] == ROWS


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    cells: Counter[tuple[int, int]] = Counter()
    for panel in panels():
        place = panel["gridPos"]
        columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells.update((x, y) for x in columns for y in lines)
        assert columns.stop <= 24, panel["title"]

    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert set(cells.values()) == {1}


def test_every_panel_takes_its_data_source_from_the_variable() -> None:
    variables = [variable["name"] for variable in document()["templating"]["list"]]

    assert variables == ["datasource", "queue"]
    for panel in panels():
        for source in _sources(panel):
            assert source == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


def test_every_query_keeps_to_the_chosen_queue() -> None:
    for title, expression in expressions():
        assert expression.count('queue=~".*"') >= 1, title


@needs_promtool
def test_every_query_parses(tmp_path: Path) -> None:
    """promtool has no command for a query alone, so each becomes a recording rule."""
    asked = sorted({expression for _, expression in expressions()})
    rules = [{"record": f"query:{number}", "expr": expression} for number, expression in enumerate(asked)]
    written = tmp_path / "queries.yaml"
    written.write_bytes(msgspec.json.encode({"groups": [{"name": "queries", "rules": rules}]}))

    checked = promtool("check", "rules", str(written))

    assert checked.returncode == 0, checked.stderr.decode()


def _sources(panel: dict[str, Any]) -> list[Any]:
    return [part["datasource"] for part in (panel, *panel.get("targets", ())) if "datasource" in part]
