"""Caches a value by step key: thousands of tasks of a type take the same steps."""

from collections.abc import Callable
from typing import Generic, TypeVar

from tideq.workers.monitor.journal.transition import ObservedTransition, StepKey

T = TypeVar("T")

MAX_ENTRIES = 4_096
"""A full cache is emptied, which costs less than tracking the oldest entry."""


class Memo(Generic[T]):
    """`make` may use only what follows from the transition's step key; `source` does not."""

    def __init__(self, make: Callable[[ObservedTransition], T], max_entries: int = MAX_ENTRIES) -> None:
        self._make = make
        self._max_entries = max_entries
        self._values: dict[StepKey, T] = {}

    def __call__(self, transition: ObservedTransition) -> T:
        key = transition.step_key
        value = self._values.get(key)
        if value is None:
            if len(self._values) >= self._max_entries:
                self._values.clear()
            value = self._values[key] = self._make(transition)
        return value
