"""The alert rules as they are shipped, and what their expressions ask for."""

import re
from typing import NamedTuple

import yaml

from tests.observability.promtool import ALERTS

METRIC = re.compile(r"\btideq_\w+")


class Rule(NamedTuple):
    alert: str
    expr: str
    severity: str
    annotations: dict[str, str]


def all_rules() -> list[Rule]:
    document = yaml.safe_load(ALERTS.read_text())
    return [
        Rule(
            each["alert"],
            each["expr"],
            each["labels"]["severity"],
            dict(each["annotations"]),
        )
        for group in document["groups"]
        for each in group["rules"]
    ]


def metrics_in(expression: str) -> set[str]:
    return set(METRIC.findall(expression))
