"""Configures logging of the commands: lines on standard error.

Lines are JSON, or readable text where standard error is a terminal. Values may come from tasks and clients: control
characters are escaped, so that a value cannot forge a line or send commands to a terminal.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from tideq.queue_core.log_once import LogOnce

POOL = "psycopg.pool"
"""The logger of the database driver's pool."""
GIVEN_UP = "reconnection attempt"
"""The pool's message that it gave up until the next query; the warnings before it have the reason."""
LOG_AGAIN_SECONDS = 300.0
MULTI_LINE = ("exception",)
"""Fields that keep their line breaks on a terminal."""

log = structlog.get_logger(__name__)


def log_to_stderr() -> None:
    """Tracebacks are logged without the values of variables, which may be payloads or keys."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *(_console_processors() if sys.stderr.isatty() else (structlog.processors.JSONRenderer(),)),
        ],
        # Writes a line in one call: `print` writes the line end separately, and another thread could write between.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    pool = logging.getLogger(POOL)
    pool.handlers, pool.propagate = [PoolLines()], False


class PoolLines(logging.Handler):
    """Logs each kind of the pool's warnings once in a while: the pool warns at every attempt to connect."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._logged = LogOnce(LOG_AGAIN_SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        if not str(record.msg).startswith(GIVEN_UP) and self._logged.is_new(str(record.msg)):
            log.warning("database pool warned", warning=record.getMessage().partition("\n")[0])


def _console_processors() -> tuple[Any, ...]:
    return escape, structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)


def escape(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escapes control characters for the console renderer; JSON escapes them by itself."""
    for name, value in line.items():
        if isinstance(value, str) and not value.isprintable():
            line[name] = _escaped(value, keeps="\n" if name in MULTI_LINE else "")
    return line


def _escaped(text: str, keeps: str) -> str:
    return "".join(each if each.isprintable() or each in keeps else ascii(each)[1:-1] for each in text)
