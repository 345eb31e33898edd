"""`python -m tests.blind_spots [word…]`: plants those whose name has the words, or all."""

import sys
import tempfile
from pathlib import Path

from tests.blind_spots.planted import MISTAKES, Copy


def main(words: list[str]) -> int:
    chosen = {name: each for name, each in MISTAKES.items() if not words or any(word in name for word in words)}
    with tempfile.TemporaryDirectory(prefix="blind-spots-") as folder:
        copy = Copy(Path(folder))
        sound = copy.run(*dict.fromkeys(each.test for each in chosen.values()))
        if sound.returncode:
            sys.stdout.write(f"with nothing planted:\n{sound.stdout}")
            return 1
        missed_count = 0
        for name, mistake in chosen.items():
            is_found = copy.finds(mistake)
            missed_count += not is_found
            sys.stdout.write(f"{name}: {'found' if is_found else 'MISSED'}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - missed_count} of {len(chosen)} found\n")
    return 1 if missed_count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
