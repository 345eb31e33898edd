"""Every suite, two files at a time; a few tests that failed are tried once more, and named."""

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(__file__).parents[1] / ".pytest_cache" / "v" / "cache" / "lastfailed"
SOME_TESTS_FAILED = 1
MOST = 5
"""More than these are no accident."""


def main() -> int:
    FAILED.unlink(missing_ok=True)
    status = pytest("--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    failed = sorted(json.loads(FAILED.read_text())) if status == SOME_TESTS_FAILED and FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        return status
    print("Failed, and tried once more by themselves:", *failed, sep="\n  ", flush=True)  # noqa: T201
    return pytest(*failed)


def pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
