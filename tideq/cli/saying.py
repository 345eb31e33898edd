"""How commands speak: answers on standard output, everything else as lines of JSON on standard error."""

import sys

import structlog


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
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
