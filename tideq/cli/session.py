"""Options and error handling shared by all commands that call a service."""

import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import cyclopts

from tideq.cli.contexts import Target, contexts_file, read_contexts, target
from tideq.cli.exit_codes import FAILED, INTERRUPTED, NOT_ALLOWED, NOT_FOUND, UNREACHABLE, USAGE, stop
from tideq.cli.exit_codes import OK as OK
from tideq.cli.output import Format
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

EXITS: dict[type[TideqError], int] = {
    InvalidRequest: USAGE,
    NotFound: NOT_FOUND,
    Unauthorized: NOT_ALLOWED,
    Forbidden: NOT_ALLOWED,
    CannotConnect: UNREACHABLE,
    NoAnswer: UNREACHABLE,
}
RETRIES = RetryPolicy(deadline_seconds=2)
"""Short, because a person waits at the prompt."""

Several = cyclopts.Parameter(negative=())
"""An option that may be given more than once."""
Switch = cyclopts.Parameter(negative=())
Ids = Annotated[list[str], cyclopts.Parameter(negative=())]


@cyclopts.Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Address:
    url: str | None = None
    """The URL of the service; also TIDEQ_URL, then the context, then http://127.0.0.1:8080."""
    api_key: str | None = None
    """Your access key, where the service requires one; also TIDEQ_API_KEY, then the context."""
    context: str | None = None
    """A service stored with `tideq context add`; also TIDEQ_CONTEXT, then the current context."""

    def target(self, environ: Mapping[str, str] = os.environ) -> Target:
        """Raises ValueError where the context is unknown or the file of contexts cannot be read."""
        return target(self.url, self.api_key, self.context, environ, read_contexts(contexts_file(environ)))


@cyclopts.Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Service(Address):
    output: Annotated[Format, cyclopts.Parameter(alias="-o")] = "table"
    """The output format."""
    no_color: Annotated[bool, cyclopts.Parameter(negative=())] = False
    """No colours; also NO_COLOR."""


LOCAL = Service()


@contextmanager
def open_client(service: Service) -> Generator[Client]:
    """A client of the service; an error inside the block ends the command with one line and an exit code."""
    if service.no_color:
        os.environ["NO_COLOR"] = "1"
    try:
        target = service.target()
        with Client(target.url, target.api_key, retries=RETRIES) as client:
            yield client
    except TideqError as error:
        stop(str(error), exit_code(error))
    except ValueError as error:
        stop(str(error), USAGE)
    except KeyboardInterrupt:
        stop("interrupted", INTERRUPTED)


def exit_code(error: TideqError) -> int:
    return next((code for kind, code in EXITS.items() if isinstance(error, kind)), FAILED)


def split(values: Iterable[str] | None) -> list[str]:
    """`--status a,b --status c` are three values."""
    return [part for value in values or () for part in value.split(",") if part]


def pairs(values: Iterable[str] | None) -> dict[str, str]:
    """`--tag name=value`, any number of times."""
    found = [value.partition("=") for value in values or ()]
    if wrong := [name for name, equals, _ in found if not equals]:
        raise ValueError(f"{wrong[0]!r} is not name=value")
    return {name: value for name, _, value in found}
