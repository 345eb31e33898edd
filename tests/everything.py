"""Every suite, two files at a time, and a part of one more with both fences of the service switched off.

A few tests that failed are tried once more, and named.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

FAILED = Path(__file__).parents[1] / ".pytest_cache" / "v" / "cache" / "lastfailed"
SOME_TESTS_FAILED = 1
MOST = 5
"""More than these are no accident."""
SIDE_BY_SIDE = ("--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder")
SWITCHED_OFF = {"TIDEQ_HOT_PATH": "off", "TIDEQ_HTTP_PROTOCOL": "uvicorn"}
WITHOUT_FENCES = tuple(
    f"tests/api/test_{name}.py"
    for name in (
        "batch_keys",
        "body_limits",
        "delivery",
        "found_by_fuzzing",
        "known_tasks",
        "malformed",
        "rate_limits",
        "roles",
        "server",
        "submission",
        "worker_binding",
        "worker_protocol",
    )
)
"""Files about the calls that the hot path answers, and about delivery and stopping: the whole suite takes minutes."""


def main() -> int:
    return run(*SIDE_BY_SIDE) or run(*SIDE_BY_SIDE, *WITHOUT_FENCES, settings=SWITCHED_OFF)


def run(*arguments: str, settings: Mapping[str, str] = MappingProxyType({})) -> int:
    FAILED.unlink(missing_ok=True)
    status = pytest(*arguments, settings=settings)
    failed = sorted(json.loads(FAILED.read_text())) if status == SOME_TESTS_FAILED and FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        return status
    print("Failed, and tried once more by themselves:", *failed, sep="\n  ", flush=True)  # noqa: T201
    return pytest(*failed, settings=settings)


def pytest(*arguments: str, settings: Mapping[str, str]) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, env={**os.environ, **settings}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
