"""What a person who waits is shown: a bar for each step. On a terminal only, and never on standard output."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tideq.cli.output import has_colours


class Bars:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    @contextmanager
    def step(self, title: str, total: int) -> Generator[Callable[[int], None]]:
        """Gives what to call with how much is done."""
        bar = self._progress.add_task(title, total=total)
        try:
            yield lambda count: self._progress.update(bar, completed=count)
            self._progress.update(bar, completed=total)
        finally:
            self._progress.stop_task(bar)


@contextmanager
def bars() -> Generator[Bars]:
    console = Console(stderr=True, no_color=not has_colours(sys.stderr))
    columns = (TextColumn("{task.description:<44}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        yield Bars(progress)
