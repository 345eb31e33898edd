"""Collects the outcomes of marking many tasks: each is marked or refused by itself."""

import contextlib
from collections.abc import Generator
from typing import Generic, TypeVar

from tideq.client.errors import NotAllMarked, TideqError

T = TypeVar("T")


class Marks(Generic[T]):
    def __init__(self) -> None:
        self._done: dict[str, T] = {}
        self._refused: dict[str, TideqError] = {}

    def note(self, task_id: str, outcome: T) -> None:
        self._done[task_id] = outcome

    def refuse(self, task_id: str, error: TideqError) -> None:
        self._refused[task_id] = error

    @contextlib.contextmanager
    def collecting(self, task_id: str) -> Generator[None]:
        """Collects an error raised inside as the refusal of this task."""
        try:
            yield
        except TideqError as error:
            self.refuse(task_id, error)

    def all(self) -> tuple[T, ...]:
        """Returns the outcomes in order. Raises NotAllMarked with all refusals."""
        if self._refused:
            raise NotAllMarked(len(self._done) + len(self._refused), self._refused)
        return tuple(self._done.values())
