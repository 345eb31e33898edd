"""`python -m tideq.cli` is the `tideq` command."""

from tideq.cli import main

main()
