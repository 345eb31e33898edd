"""A handler that computes: a child process imports it from here."""

from tideq import task
from tideq.workers.runtime.registry import has_started


@task(process=True)
def add(a: int, b: int) -> int:
    return a + b


@task(process=True)
def will_not_be_reminded() -> bool:
    """Its process is there to run handlers."""
    return has_started.is_set()
