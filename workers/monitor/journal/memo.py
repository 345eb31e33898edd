"""What is made of a transition's looks, made once: thousands of tasks of a type take the same steps."""

from collections.abc import Callable
from typing import Generic, TypeVar

from tideq.workers.monitor.journal.transition import ObservedTransition, StepKey

T = TypeVar("T")

MAX_KNOWN = 4_096
"""Types times workers times steps may be more. To begin anew when they are costs less than to know which is oldest."""


class Memo(Generic[T]):
    """`make` may use nothing of a transition but what follows from its looks; its source does not."""

    def __init__(self, make: Callable[[ObservedTransition], T], max_known: int = MAX_KNOWN) -> None:
        self._make = make
        self._max_known = max_known
        self._known: dict[StepKey, T] = {}

    def __call__(self, transition: ObservedTransition) -> T:
        looks = transition.looks
        known = self._known.get(looks)
        if known is None:
            if len(self._known) >= self._max_known:
                self._known.clear()
            known = self._known[looks] = self._make(transition)
        return known
