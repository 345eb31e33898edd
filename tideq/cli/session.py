"""What all commands that talk to a service share: where it is, how answers look, how failures end.

Exit codes: 0 done, 1 the task or operation failed, 2 asked wrongly, 3 not found, 4 not allowed, 5 cannot connect,
130 interrupted.
"""

import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, NoReturn

import cyclopts

from tideq.cli.output import Format, note
from tideq.client import (
    CannotConnect,
    Client,
    Forbidden,
    InvalidRequest,
    NoAnswer,
    NotFound,
    RetryPolicy,
    TideqError,
    Unauthorized,
)

OK, FAILED, USAGE, NOT_FOUND, NOT_ALLOWED, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
EXITS: dict[type[TideqError], int] = {
    InvalidRequest: USAGE,
    NotFound: NOT_FOUND,
    Unauthorized: NOT_ALLOWED,
    Forbidden: NOT_ALLOWED,
    CannotConnect: UNREACHABLE,
    NoAnswer: UNREACHABLE,
}
PATIENCE = RetryPolicy(deadline_seconds=2)
"""Somebody waits at the prompt."""

Several = cyclopts.Parameter(negative=())
"""May be given more than once."""
Switch = cyclopts.Parameter(negative=())
Ids = Annotated[list[str], cyclopts.Parameter(negative=())]


@cyclopts.Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Service:
    url: Annotated[str | None, cyclopts.Parameter(env_var="TIDEQ_URL")] = None
    """Where the service answers; http://127.0.0.1:8080 by default."""
    api_key: Annotated[str | None, cyclopts.Parameter(env_var="TIDEQ_API_KEY")] = None
    """Your key, where it asks for one."""
    output: Annotated[Format, cyclopts.Parameter(alias="-o")] = "table"
    """How to show the answer."""


LOCAL = Service()


@contextmanager
def calling(service: Service) -> Generator[Client]:
    """A client; whatever goes wrong becomes one line and an exit code."""
    try:
        with Client(service.url, service.api_key, retries=PATIENCE) as client:
            yield client
    except TideqError as error:
        stop(str(error), exit_code(error))
    except ValueError as error:
        stop(str(error), USAGE)
    except KeyboardInterrupt:
        stop("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # Whoever read along has seen enough. Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OK)


def exit_code(error: TideqError) -> int:
    return next((code for kind, code in EXITS.items() if isinstance(error, kind)), FAILED)


def stop(why: str, code: int) -> NoReturn:
    note(f"error: {why}")
    sys.exit(code)


def split(values: Iterable[str] | None) -> list[str]:
    """`--status a,b --status c` is three."""
    return [part for value in values or () for part in value.split(",") if part]


def pairs(values: Iterable[str] | None) -> dict[str, str]:
    """`--tag name=value`, any number of times."""
    found = [value.partition("=") for value in values or ()]
    if wrong := [name for name, equals, _ in found if not equals]:
        raise ValueError(f"{wrong[0]!r} is not name=value")
    return {name: value for name, _, value in found}
