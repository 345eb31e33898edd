"""How commands speak: answers on standard output, everything else as lines on standard error.

Lines are JSON, or for people where standard error is a terminal. What they tell comes from anywhere and may be
anything: control characters are escaped, so that nobody writes lines of their own or steers a terminal.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from tideq.queue_core.log_once import LogOnce

POOL = "psycopg.pool"
"""What the database driver's pool logs with."""
GIVEN_UP = "reconnection attempt"
"""Until the next reader; why is in the warnings before."""
TELL_AGAIN_SECONDS = 300.0
MULTI_LINE = ("exception",)
"""Tracebacks keep their lines where people read them."""

log = structlog.get_logger(__name__)


def say(line: str = "") -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def log_to_stderr() -> None:
    """Standard output is for answers. Tracebacks come without the values of variables: they may be payloads or keys."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *(_for_people() if sys.stderr.isatty() else (structlog.processors.JSONRenderer(),)),
        ],
        # A line at once: printing writes its end apart, and another thread's lines could come between.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    pool = logging.getLogger(POOL)
    pool.handlers, pool.propagate = [PoolLines()], False


class PoolLines(logging.Handler):
    """The pool warns at every attempt to connect, in lines of its own kind: one of a kind is told while it lasts."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told = LogOnce(TELL_AGAIN_SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        if not str(record.msg).startswith(GIVEN_UP) and self._told.is_new(str(record.msg)):
            log.warning("database pool warned", warning=record.getMessage().partition("\n")[0])


def _for_people() -> tuple[Any, ...]:
    return escape, structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)


def escape(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """JSON escapes by itself; this is for what is written as it is."""
    for name, value in line.items():
        if isinstance(value, str) and not value.isprintable():
            line[name] = _escaped(value, keeps="\n" if name in MULTI_LINE else "")
    return line


def _escaped(text: str, keeps: str) -> str:
    return "".join(each if each.isprintable() or each in keeps else ascii(each)[1:-1] for each in text)
