"""Services as the tests need them, all real processes."""

import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.api.running import START_SECONDS, TIDEQ, serving
from tests.history.servers import command
from tideq.client import Client


@contextmanager
def with_history(settings: dict[str, str], folder: Path) -> Generator[str]:
    """The address of a service whose history is written by a replicator of its own."""
    command_done(settings, "migrate")
    with serving(settings, folder) as running, command(settings, folder / "replicate.log", "replicate"):
        _see_it_replicate(running.url)
        yield running.url


def command_done(settings: dict[str, str], *arguments: str) -> str:
    """What a `tideq` command of the operator's said, which must go well."""
    done = subprocess.run([TIDEQ, *arguments], env=settings, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _see_it_replicate(url: str) -> None:
    """Once around with a task that leaves no trace."""
    with Client(url) as client:
        task_id = client.submit("probe", delay_seconds=60).task_id
        client.cancel(task_id)
        deadline = time.monotonic() + START_SECONDS
        while client.get(task_id, history=True).history_lag_seconds:
            assert time.monotonic() < deadline, "nothing replicates"
        client.purge(task_id)
