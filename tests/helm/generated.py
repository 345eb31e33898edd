"""What is written from something else: the README's table from values.yaml, the schema's settings from the program.

`make maps` writes both, a test compares.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from tests.architecture.maps import drawn
from tests.helm.chart import CHART
from tideq.api.settings import SERVICE_SETTINGS
from tideq.persistence.settings import HISTORY_SETTINGS
from tideq.queue_core.name_rules import NAME_FORM, QUEUE_NAME_FORM
from tideq.queue_core.settings import QUEUE_SETTINGS

VALUES, SCHEMA, README = CHART / "values.yaml", CHART / "values.schema.json", CHART / "README.md"
OTHERWISE = {"REDIS_URL", "DATABASE_URL", "TIDEQ_HOST", "TIDEQ_PORT", "TIDEQ_AUTH", "TIDEQ_PROBE_ALLOWED_CIDRS"}
"""The chart has values of its own for these; without keys it never listens."""
MARK = "# -- "


def _listed(form: str) -> str:
    return rf"\s*({form}(\s*,\s*{form})*)?\s*"


NUMBER = r"[0-9]+(\.[0-9]*)?"
FORMS = {
    "TIDEQ_QUEUE": QUEUE_NAME_FORM,
    "TIDEQ_DEFAULT_PRIORITY": NAME_FORM,
    "TIDEQ_DEPTH_EXEMPT_CLIENTS": _listed(NAME_FORM),
    "TIDEQ_PRIORITIES": _listed(f"{NAME_FORM}=-?{NUMBER}:[0-9]+:{NUMBER}"),
}


class Entry(NamedTuple):
    path: tuple[str, ...]
    description: str
    """Empty for a key that has none, nor children that could have."""
    default: Any


def entries() -> list[Entry]:
    text = VALUES.read_text()
    compose: Any = getattr(yaml, "compose")  # noqa: B009 - its stub has no types
    return list(_entries(compose(text), yaml.safe_load(text), text.splitlines(), ()))


def _entries(node: Any, values: Any, lines: list[str], above: tuple[str, ...]) -> Iterator[Entry]:
    for key, value in node.value:
        path, default = (*above, key.value), values[key.value]
        description = _comment(lines, key.start_mark.line)
        if not description and isinstance(value, yaml.MappingNode) and value.value:
            yield from _entries(value, default, lines, path)
        else:
            yield Entry(path, description, default)


def _comment(lines: list[str], at: int) -> str:
    """The comment right above a line, if it is a description."""
    found: list[str] = []
    while at > 0 and lines[at - 1].strip().startswith("#"):
        at -= 1
        found.insert(0, lines[at].strip())
        if found[0].startswith(MARK):
            return " ".join([found[0].removeprefix(MARK), *(line.removeprefix("# ") for line in found[1:])])
    return ""


def values_table() -> str:
    rows = [
        f"| `{'.'.join(entry.path)}` | `{json.dumps(entry.default)}` | {entry.description} |".replace('| `""` |', "| |")
        for entry in entries()
    ]
    return "\n".join(["| value | default | what it is |", "| --- | --- | --- |", *rows])


def readme() -> str:
    return drawn(README.read_text(), "values", values_table())


def setting_names() -> list[str]:
    return sorted({*QUEUE_SETTINGS, *HISTORY_SETTINGS, *SERVICE_SETTINGS} - OTHERWISE)


def _form(name: str) -> dict[str, Any]:
    """Names are checked before anything is installed: the service would refuse them at its start."""
    return {"type": "string", "pattern": f"^{FORMS[name]}$"} if name in FORMS else {"$ref": "#/$defs/setting"}


def schema() -> str:
    known = json.loads(SCHEMA.read_text())
    known["properties"]["settings"]["properties"] = {name: _form(name) for name in setting_names()}
    return json.dumps(known, indent=2) + "\n"


def main() -> None:
    README.write_text(readme())
    SCHEMA.write_text(schema())


if __name__ == "__main__":
    main()
