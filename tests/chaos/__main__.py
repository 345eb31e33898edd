"""`python -m tests.chaos`: one run, by CHAOS_LEVEL, CHAOS_SEED, CHAOS_SECONDS, CHAOS_FAULT_SECONDS and CHAOS_WITHOUT.

CHAOS_FAULT_SECONDS is the time from one fault to the next, on average; CHAOS_WITHOUT names faults to leave out, with
commas. Fails when a promise was broken.
"""

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.levels import chosen
from tests.chaos.run import run
from tests.upgrade.rolling import run_from_earlier


def main() -> int:
    try:
        level = chosen(os.environ)
        seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    folder = Path(os.environ.get("CHAOS_FOLDER") or tempfile.mkdtemp(prefix=f"chaos-{seed}-"))
    sys.stdout.write(f"chaos {level.name}, seed {seed}, {level.seconds:g} s, in {folder}\n")
    sys.stdout.flush()
    report = run_from_earlier(level, seed, folder) if level.has_upgrade else run(level, seed, folder)
    sys.stdout.write(report.told() + "\n")
    if report.is_good and "CHAOS_FOLDER" not in os.environ:
        shutil.rmtree(folder)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
