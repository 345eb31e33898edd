"""values.yaml, its schema, its README and the program's settings say the same."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from tests.helm.chart import CHART, ROOT, SCENARIOS, Json, values_file
from tests.helm.generated import README, SCHEMA, entries, readme, schema


def test_every_value_has_a_comment() -> None:
    assert [".".join(entry.path) for entry in entries() if not entry.description] == []
    assert len(entries()) > 100


def test_the_readme_is_made_of_the_values() -> None:
    assert README.read_text() == readme(), "run `make maps`"


def test_the_schema_has_the_settings_of_the_program() -> None:
    assert SCHEMA.read_text() == schema(), "run `make maps`"


def test_every_object_of_the_schema_is_closed() -> None:
    for path, part in _objects(json.loads(SCHEMA.read_text()), "#"):
        # `pod` is what every role begins with; each closes itself over both.
        if path != "#/$defs/pod":
            assert part.get("additionalProperties", part.get("unevaluatedProperties")) is False, path


def test_the_schema_describes_every_value_and_no_other() -> None:
    """Both ways: nothing is set that is not described, nothing described that cannot be seen in values.yaml."""
    document = json.loads(SCHEMA.read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    described = set(_leaves(document, document))

    jsonschema.validate(defaults, document)
    for entry in entries():
        path = ".".join(entry.path)
        assert path in described, f"{path} is not in the schema"
    assert {path for path in described if not _is_known(path, defaults)} == set()


def test_the_chart_has_the_version_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_says_what_it_is(scenario: str) -> None:
    assert values_file(scenario).read_text().startswith("# ")


def _objects(part: Any, path: str) -> Iterator[tuple[str, Json]]:
    """Every part of a schema that lists properties."""
    if isinstance(part, dict):
        if isinstance(part.get("properties"), dict):  # pyright: ignore[reportUnknownMemberType]
            yield path, part  # pyright: ignore[reportUnknownVariableType]
        for name, below in part.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _objects(below, f"{path}/{name}")


def _leaves(document: Json, part: Json, above: str = "") -> Iterator[str]:
    """Every path the schema has a description for, sections included."""
    if above:
        yield above.removeprefix(".")
    if "$ref" in part:
        part = document["$defs"][part["$ref"].rpartition("/")[2]]
    for parent in (*part.get("allOf", ()), part):
        resolved = document["$defs"][parent["$ref"].rpartition("/")[2]] if "$ref" in parent else parent
        for name, below in resolved.get("properties", {}).items():
            yield from _leaves(document, below, f"{above}.{name}")


def _is_known(path: str, defaults: Json) -> bool:
    """Whether values.yaml has it, or a role may take it from podDefaults, or it is one of a documented whole."""
    names = path.split(".")
    if names[0] in ("api", "monitor", "replicator", "workerDefaults") and _has(defaults["podDefaults"], names[1:]):
        return True
    wholes = ("settings", "resources", "extraEnv")
    return _has(defaults, names) or any(name in wholes for name in names[:-1])


def _has(values: Any, names: list[str]) -> bool:
    for name in names:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]  # pyright: ignore[reportUnknownVariableType]
    return True
