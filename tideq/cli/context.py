"""`tideq context`: services by name."""

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


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Without the secret part of its key."""

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
    """Remember a service under a name. The first one is used from then on.

    Parameters
    ----------
    name
        What to call it.
    url
        Where it answers.
    api_key
        Your key there; `-` reads it from standard input, where neither the shell's history nor others see it.
    use
        Make it the one that commands talk to.
    replace
        Where the name is taken, forget what it stood for.
    """
    contexts = _contexts()
    if not NAME.fullmatch(name):
        stop(f"{name!r} is no name for a context: letters, digits and _.- will do", USAGE)
    if name in contexts.contexts and not replace:
        stop(f"there is a context {name!r} already: --replace forgets it", USAGE)
    try:
        key = checked_key(sys.stdin.readline() if api_key == "-" else api_key)
        contexts = contexts.with_one(name, Context(url=checked_url(url), api_key=key))
    except ValueError as error:
        stop(str(error), USAGE)
    _keep(contexts.using(name) if use else contexts)


def use(name: str) -> None:
    """Talk to this service wherever nothing else is said.

    Parameters
    ----------
    name
        Of a context.
    """
    contexts = _contexts()
    with _known():
        _keep(contexts.using(name))


def show_list(*, output: Output = "table") -> None:
    """Every context, without the secret part of its key.

    Parameters
    ----------
    output
        How to show the answer.
    """
    contexts = _contexts()
    show([_shown(contexts, name) for name in sorted(contexts.contexts)], COLUMNS, output)


def show_context(name: str | None = None, *, output: Output = "table") -> None:
    """One context; without a name, the current one.

    Parameters
    ----------
    name
        Of a context.
    output
        How to show the answer.
    """
    contexts = _contexts()
    if not (wanted := name or contexts.current):
        stop("no context is in use: `tideq context use NAME`", NOT_FOUND)
    with _known():
        contexts.named(wanted)
    show_one(_shown(contexts, wanted), output)


def remove(name: str) -> None:
    """Forget a context, and its key with it.

    Parameters
    ----------
    name
        Of a context.
    """
    contexts = _contexts()
    with _known():
        _keep(contexts.without(name))


@contextlib.contextmanager
def _known() -> Generator[None]:
    try:
        yield
    except UnknownContext as error:
        stop(str(error), NOT_FOUND)


def _shown(contexts: Contexts, name: str) -> Shown:
    context = contexts.contexts[name]
    return Shown(name=name, is_current=name == contexts.current, url=context.url, api_key=_hint(context.api_key))


def _hint(key: str) -> str | None:
    """`tq_<id>_…`: the id is no secret, and says which key it is."""
    if not key:
        return None
    parts = key.split("_", 2)
    return f"{parts[0]}_{parts[1]}_…" if len(parts) == 3 else "…"


def _contexts() -> Contexts:
    try:
        return read_contexts(contexts_file(os.environ))
    except ValueError as error:
        stop(str(error), USAGE)


def _keep(contexts: Contexts) -> None:
    try:
        write_contexts(contexts_file(os.environ), contexts)
    except UnknownContext:
        raise
    except ValueError as error:
        stop(str(error), USAGE)
    if contexts.current:
        note(f"in use: {contexts.current}")
