"""In which order files are handed out: a long one that begins last keeps one worker busy and the others idle.

Suites stay together, because a suite's servers are started for as long as its tests follow one another.
"""

from collections.abc import Sequence

LONG_FIRST: Sequence[str] = (
    "tests/chaos/test_smoke.py",
    "tests/upgrade/test_rolling.py",
    "tests/fuzz/test_campaign.py",
    "tests/helm/test_image.py",
    "tests/helm/test_rendering.py",
    "tests/helm",
    "tests/browser",  # one after the other as they are named: what one leaves behind another looks at
    "tests/model",
    "tests/failover",
    "tests/workers/test_outages.py",
    "tests/workers/test_kills.py",
    "tests/workers",
    "tests/client/test_bench.py",
    "tests/client",
    "tests/api/test_rolling_restart.py",
    "tests/api/test_processes.py",
    "tests/api/test_delivery.py",
    "tests/api/test_up.py",
    "tests/api",
    "tests/history",
    "tests/integration",
    "tests/partitions",
    "tests/observability",
    "tests/telemetry",
    "tests/security",
    "tests/application",
)
"""Files and folders by how long they take; those not named here are short, and fill the end."""


def place(node_id: str) -> int:
    """Of the file a test is in; within one place the order stays as it was."""
    path = node_id.partition("::")[0]
    return next((number for number, name in enumerate(LONG_FIRST) if is_in(path, name)), len(LONG_FIRST))


def is_in(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}/")
