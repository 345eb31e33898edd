"""What the site's real workers run: they write down each beginning and end. Copied next to where they run."""

import json
import os
import signal
import time
from typing import Any

from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.failures import Fail
from tideq.workers.runtime.handlers import Handler
from tideq.workers.runtime.registry import registered

LEDGER = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
BOOTED_MS = int(os.environ.get("BOOTED_MS") or (time.time_ns() - time.monotonic_ns()) // 1_000_000)
"""When the machine's monotonic clock began, by the harness's wall clock where that of a worker may be wrong."""


def _note(event: str, ctx: TaskContext, mark: str) -> None:
    facts = {"task_id": ctx.task_id, "attempt": ctx.attempt, "mark": mark, "pid": os.getpid()}
    line = {"event": event, "at": BOOTED_MS + time.monotonic_ns() // 1_000_000, **facts}
    os.write(LEDGER, json.dumps(line).encode() + b"\n")


def work(ctx: TaskContext, mark: str, how: str = "well", seconds: float = 0.0) -> dict[str, Any]:
    _note("start", ctx, mark)
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if seconds:
        time.sleep(seconds)
    if how == "fatal":
        raise Fail("never", code="NEVER")
    if how == "once" and ctx.attempt == 1:
        raise RuntimeError("the first attempt breaks")
    _note("end", ctx, mark)
    return {"mark": mark, "pid": os.getpid(), "attempt": ctx.attempt}


registered.add(Handler("work", work))
