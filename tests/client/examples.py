"""The examples in docstrings, run as they stand: `>>>` lines, with `await` wherever a prompt would allow it."""

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
from collections.abc import Iterator
from typing import Any, NamedTuple

from tideq.client import AsyncClient, Client


class Documented(NamedTuple):
    name: str
    examples: list[doctest.Example]


def documented(kind: type) -> Iterator[Documented]:
    """A class's own example, then its methods', in the order they are written."""
    things = [(kind.__name__, kind), *((f"{kind.__name__}.{name}", thing) for name, thing in vars(kind).items())]
    for name, thing in things:
        if examples := doctest.DocTestParser().get_examples(inspect.getdoc(thing) or "", name):
            yield Documented(name, examples)


def run(documented: Documented, names: dict[str, Any], client: AsyncClient | Client) -> None:
    """In a loop of its own, with a client at hand, which is closed; what differs from the docstring is told."""
    with asyncio.Runner() as runner:
        names["client"] = client
        for example in documented.examples:
            got = _output(example, names, runner)
            assert doctest.OutputChecker().check_output(example.want, got, 0), (
                f"{documented.name}: {example.source}expected {example.want!r}, got {got!r}"
            )
        if isinstance(client, Client):
            client.close()
        else:
            runner.run(client.aclose())


def _output(example: doctest.Example, names: dict[str, Any], runner: asyncio.Runner) -> str:
    code = compile(example.source, "<example>", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def run_it() -> None:
        if inspect.isawaitable(result := eval(code, names)):  # noqa: S307 - it is our own text
            await result

    with contextlib.redirect_stdout(io.StringIO()) as said:
        runner.run(run_it())
    return said.getvalue()
