"""Lists come a page at a time."""

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page may be short, even empty, and still have a next one."""

    items: tuple[T, ...]
    next_cursor: str | None = None
    total: int | None = None
    """Of all pages, where that was asked for."""
    total_is_exact: bool = True
    """If not, there are at least so many."""
