"""`tideq up`: everything on this machine, with its data in one folder."""

from pathlib import Path

from tideq.embedded.foreground import run_in_foreground


def up(*, data_dir: Path = Path("data")) -> None:
    """Run the stores, a real Valkey and a real PostgreSQL, until Ctrl-C or SIGTERM.

    REDIS_URL and DATABASE_URL take precedence: a store given by its URL is not started.

    Parameters
    ----------
    data_dir
        Where the stores keep their data.
    """
    run_in_foreground(data_dir)
