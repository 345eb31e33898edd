"""What the worker process of these tests does."""

from tideq import task


@task
def double(number: int) -> int:
    return number * 2


@task(max_retries=0)
def refuse(number: int) -> int:
    raise ValueError(f"not {number}")
