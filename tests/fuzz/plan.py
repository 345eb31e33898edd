"""What schemathesis is told: which phases, how many cases, what it need not learn or guess."""

from collections.abc import Mapping
from typing import Any, cast

import schemathesis

SEED = 20_260_301
MIN_CASES = 100
"""Of every operation."""
MIN_RANDOM_CASES = 20
"""Of them, made at random; more where examples and edge cases are few."""
STATEFUL_CALLS = 400
MAX_ROUNDS = 10
"""Sequences are made of answers, which differ from run to run: Hypothesis gives up a round when it notices."""
STREAM_SECONDS = 0.15
"""How long a stream is watched: it would not end by itself."""

Phases = dict[str, Any]
OFF = {"enabled": False}
BY_RULE: Phases = {"fuzzing": OFF, "stateful": OFF}
AT_RANDOM: Phases = {
    "examples": OFF,
    "coverage": OFF,
    "stateful": OFF,
    # Learning from answers makes a campaign depend on them, and then Hypothesis gives up: real ids are lent instead.
    "fuzzing": {"extra-data-sources": {"responses": False}, "error-feedback": OFF},
}
IN_SEQUENCE: Phases = {
    "examples": OFF,
    "coverage": OFF,
    "fuzzing": OFF,
    # Along the links the document has; others that could be guessed lead nowhere.
    "stateful": {
        "max-steps": 12,
        "inference": {"algorithms": ["location-headers"]},
        "generation": {"max-examples": 25},
    },
}


def plan(url: str, key: str, seed: int, phases: Phases, had: Mapping[str, int]) -> schemathesis.Config:
    """`had` are the cases every operation has had so far, by its name."""
    read: Any = cast("Any", schemathesis).Config.from_dict
    return read(
        {
            "seed": seed,
            "base-url": url,
            "headers": {"Authorization": f"Bearer {key}"},
            "continue-on-failure": True,
            # A NUL is refused everywhere and the document says so; JSON Schema has no short way to.
            "generation": {"database": "none", "allow-x00": False, "no-shrink": True},
            "phases": phases,
            "operations": [_operation(name, count) for name, count in had.items()],
        }
    )


def _operation(name: str, had: int) -> dict[str, Any]:
    wanted = max(MIN_CASES - had, MIN_RANDOM_CASES)
    told: dict[str, Any] = {"include-name": name, "generation": {"max-examples": wanted}}
    if name.endswith("/events"):
        told |= {"request-timeout": STREAM_SECONDS, "request-retries": 2}
    if "/api/v1/tasks" in name:
        # DELETE cancels a task, which can still be read; what must be gone is looked for in `graveyard.py`.
        told["checks"] = {"use_after_free": OFF}
    return told
