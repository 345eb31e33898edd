"""A list that is fetched page by page while it is read."""

from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from tideq.client._async.transport import AsyncTransport
from tideq.client.calls.base import Call
from tideq.client.models.pages import Page
from tideq.client.options import strict

T = TypeVar("T")


@strict
class AsyncListing(Generic[T]):
    """Iterate over it for all items, over `pages()` for pages, or take one `page()` and its cursor."""

    def __init__(self, transport: AsyncTransport, page_at: Callable[[str | None], Call[Page[T]]]) -> None:
        self._transport = transport
        self._page_at = page_at

    async def page(self, cursor: str | None = None) -> Page[T]:
        """Returns the first page, or the page that begins at a cursor."""
        return await self._transport.request(self._page_at(cursor))

    async def pages(self) -> AsyncIterator[Page[T]]:
        page = await self.page()
        yield page
        while page.next_cursor:
            page = await self.page(page.next_cursor)
            yield page

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for item in page.items:
                yield item
