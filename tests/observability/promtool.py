"""Prometheus's own tool, as tests use it."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.tools import find

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "helm/files/alerts.yaml"

PROMTOOL = find("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: `make tools` fetches it where it can")


def promtool(*arguments: str, told: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], input=told, capture_output=True, timeout=120, check=False)


def unit_test(folder: Path, cases: list[dict[str, object]]) -> subprocess.CompletedProcess[bytes]:
    """Each case is one of promtool's `tests`; what they say is about our own rules."""
    written = folder / "cases.yaml"
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": cases}
    written.write_bytes(msgspec.json.encode(document))
    return promtool("test", "rules", str(written))
