"""One page of a list."""

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page may be short, even empty, and still have a next page."""

    items: tuple[T, ...]
    next_cursor: str | None = None
    total: int | None = None
    """Of all pages, if the count was requested."""
    total_is_exact: bool = True
    """False: `total` is a lower bound."""
