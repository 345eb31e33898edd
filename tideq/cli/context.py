"""`tideq context`: stores services under names."""

import contextlib
import os
import sys
from collections.abc import Generator
from typing import Annotated

import cyclopts
import msgspec

from tideq.cli.contexts import (
    NAME,
    Context,
    Contexts,
    UnknownContext,
    contexts_file,
    read_contexts,
    write_contexts,
)
from tideq.cli.output import Format, note, show, show_one
from tideq.cli.session import NOT_FOUND, USAGE, Switch, stop
from tideq.client.config import checked_key, checked_url

COLUMNS = {"context": "name", "current": "is_current", "url": "url", "key": "api_key"}
Output = Annotated[Format, cyclopts.Parameter(alias="-o")]


class ContextRow(msgspec.Struct, frozen=True, kw_only=True):
    """A context without the secret part of its key."""

    name: str
    is_current: bool
    url: str
    api_key: str | None


def add(
    name: str,
    *,
    url: str,
    api_key: Annotated[str, cyclopts.Parameter(allow_leading_hyphen=True)] = "",
    use: Annotated[bool, Switch] = False,
    replace: Annotated[bool, Switch] = False,
) -> None:
    """Store the URL and the key of a service under a name. The first context becomes the current one.

    Parameters
    ----------
    name
        The name of the context.
    url
        The URL of the service.
    api_key
        Your access key; `-` reads it from standard input, which keeps it out of the shell's history and process lists.
    use
        Make it the current context.
    replace
        Overwrite a context of this name.
    """
    contexts = _contexts()
    if not NAME.fullmatch(name):
        stop(f"{name!r} is not a valid context name; use letters, digits and _.-", USAGE)
    if name in contexts.contexts and not replace:
        stop(f"context {name!r} exists already; --replace overwrites it", USAGE)
    try:
        key = checked_key(sys.stdin.readline() if api_key == "-" else api_key)
        contexts = contexts.with_one(name, Context(url=checked_url(url), api_key=key))
    except ValueError as error:
        stop(str(error), USAGE)
    _save(contexts.using(name) if use else contexts)


def use(name: str) -> None:
    """Make a context the current one.

    Parameters
    ----------
    name
        The name of the context.
    """
    contexts = _contexts()
    with _exit_when_unknown():
        _save(contexts.using(name))


def show_list(*, output: Output = "table") -> None:
    """All contexts, without the secret part of their keys.

    Parameters
    ----------
    output
        The output format.
    """
    contexts = _contexts()
    show([_row(contexts, name) for name in sorted(contexts.contexts)], COLUMNS, output)


def show_context(name: str | None = None, *, output: Output = "table") -> None:
    """One context; without a name, the current one.

    Parameters
    ----------
    name
        The name of the context.
    output
        The output format.
    """
    contexts = _contexts()
    if not (selected := name or contexts.current):
        stop("no context is in use; choose one with `tideq context use NAME`", NOT_FOUND)
    with _exit_when_unknown():
        contexts.named(selected)
    show_one(_row(contexts, selected), output)


def remove(name: str) -> None:
    """Remove a context and its key.

    Parameters
    ----------
    name
        The name of the context.
    """
    contexts = _contexts()
    with _exit_when_unknown():
        _save(contexts.without(name))


@contextlib.contextmanager
def _exit_when_unknown() -> Generator[None]:
    try:
        yield
    except UnknownContext as error:
        stop(str(error), NOT_FOUND)


def _row(contexts: Contexts, name: str) -> ContextRow:
    context = contexts.contexts[name]
    return ContextRow(name=name, is_current=name == contexts.current, url=context.url, api_key=_hint(context.api_key))


def _hint(key: str) -> str | None:
    """`tq_<id>_…`: the id is not secret and identifies the key."""
    if not key:
        return None
    parts = key.split("_", 2)
    return f"{parts[0]}_{parts[1]}_…" if len(parts) == 3 else "…"


def _contexts() -> Contexts:
    try:
        return read_contexts(contexts_file(os.environ))
    except ValueError as error:
        stop(str(error), USAGE)


def _save(contexts: Contexts) -> None:
    try:
        write_contexts(contexts_file(os.environ), contexts)
    except UnknownContext:
        raise
    except ValueError as error:
        stop(str(error), USAGE)
    if contexts.current:
        note(f"in use: {contexts.current}")
