"""The demo worker of `tideq up`: handlers `hello` and `sleep` on the worker runtime.

Run as a script: `demo.py ADDRESS PARENT`, the process id of the parent. On SIGTERM it releases its tasks at once and
deregisters. It ends when its parent process has ended.
"""

import asyncio
import os
import signal
import sys
import threading
import time

import structlog

from tideq.application.decorator import task
from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.failures import Fail
from tideq.workers.runtime.registry import registered
from tideq.workers.runtime.worker_process import WorkerSettings, run_until_signal

STEP_SECONDS = 0.5
MAX_SLEEP_SECONDS = 300
CHECK_SECONDS = 0.5
STOP_SECONDS = 2


@task
async def hello(name: str = "world") -> dict[str, str]:
    return {"greeting": f"Hello, {name}!"}


@task
async def sleep(ctx: TaskContext, seconds: float = 1) -> dict[str, float]:
    if not 0 <= seconds <= MAX_SLEEP_SECONDS:
        raise Fail(f"seconds must lie between 0 and {MAX_SLEEP_SECONDS}")
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        ctx.progress(100 * (1 - left / seconds), f"{left:.1f} s to go")
        await asyncio.sleep(min(left, STEP_SECONDS))
    return {"slept_seconds": seconds}


def end_with(parent: int) -> None:
    """Stops this worker when the parent has ended, also where it was killed during start-up."""
    while os.getppid() == parent:
        time.sleep(CHECK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    # A worker with unsent reports waits for the service, which may be gone too: the second signal ends it.
    time.sleep(STOP_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def main(address: str, parent: int) -> int:
    """Logs nothing below critical: it shares its terminal with the service."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    return run_until_signal(WorkerSettings(url=address, name="demo", concurrency=4, drain_seconds=0), registered)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
