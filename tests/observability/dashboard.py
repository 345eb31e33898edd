"""The Grafana dashboard as it is shipped, and what its panels ask for."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tests.observability.promtool import ROOT

DASHBOARD = ROOT / "helm/files/dashboard.json"
VARIABLES = {"$__rate_interval": "5m", "$queue": ".*"}


def document() -> dict[str, Any]:
    return msgspec.json.decode(DASHBOARD.read_bytes())


def panels() -> list[dict[str, Any]]:
    return document()["panels"]


def expressions() -> Iterator[tuple[str, str]]:
    """A panel's title and one of its queries, with Grafana's variables filled in."""
    for panel in panels():
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            yield panel["title"], expression
