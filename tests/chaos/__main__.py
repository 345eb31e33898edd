"""`python -m tests.chaos`: one run, by CHAOS_LEVEL, CHAOS_SEED, CHAOS_SECONDS and CHAOS_FAULT_SECONDS.

The last is the time from one fault to the next, on average. Fails when a promise was broken.
"""

import dataclasses
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.levels import LEVELS
from tests.chaos.run import run


def main() -> int:
    level = LEVELS[os.environ.get("CHAOS_LEVEL", "long")]
    if seconds := os.environ.get("CHAOS_SECONDS"):
        level = dataclasses.replace(level, seconds=float(seconds))
    if seconds := os.environ.get("CHAOS_FAULT_SECONDS"):
        level = dataclasses.replace(level, fault_seconds=float(seconds))
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))
    folder = Path(os.environ.get("CHAOS_FOLDER") or tempfile.mkdtemp(prefix=f"chaos-{seed}-"))
    sys.stdout.write(f"chaos {level.name}, seed {seed}, {level.seconds:g} s, in {folder}\n")
    sys.stdout.flush()
    report = run(level, seed, folder)
    sys.stdout.write(report.told() + "\n")
    if report.is_good and "CHAOS_FOLDER" not in os.environ:
        shutil.rmtree(folder)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
