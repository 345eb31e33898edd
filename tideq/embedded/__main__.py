"""`python -m tideq.embedded --data-dir D`: runs the two stores without importing the rest of TideQ."""

import argparse
from pathlib import Path

from tideq.embedded.foreground import run_in_foreground

parser = argparse.ArgumentParser(prog="python -m tideq.embedded", description=__doc__)
parser.add_argument("--data-dir", type=Path, required=True)
run_in_foreground(parser.parse_args().data_dir)
