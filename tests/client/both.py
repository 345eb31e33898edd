"""Both forms of the client behind one face: the blocking one is called in threads, and awaited like the other.

So every test is written once, against the asynchronous client's types, and run against both.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, cast

from tideq.client import AsyncClient, Client
from tideq.client.bulk import AsyncPullQueue, PullQueue

Form = Literal["async", "sync"]
FORMS: tuple[Form, ...] = ("async", "sync")
PROMPT = frozenset({"list", "events", "pages"})
"""Return at once in both forms, something to be read piece by piece."""
END = object()


class Awaited:
    def __init__(self, blocking: Any) -> None:
        self.blocking = blocking

    def __getattr__(self, name: str) -> Any:
        name = {"aclose": "close"}.get(name, name)
        value = getattr(self.blocking, name)
        if name in {"queue", "dlq", "workers"}:
            return Awaited(value)
        if not callable(value):
            return value
        return _prompt(value) if name in PROMPT else _threaded(value)

    async def __aenter__(self) -> "Awaited":
        await asyncio.to_thread(self.blocking.__enter__)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.blocking.__exit__, *error)

    def __aiter__(self) -> "Awaited":
        return Awaited(iter(self.blocking))

    async def __anext__(self) -> Any:
        value = await asyncio.to_thread(next, self.blocking, END)
        if value is END:
            raise StopAsyncIteration
        return value


def _prompt(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **options: Awaited(method(*args, **options))


def _threaded(method: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **options: Any) -> Any:
        return await asyncio.to_thread(method, *args, **options)

    return call


def client_of(form: Form, url: str, **options: Any) -> AsyncClient:
    return AsyncClient(url, **options) if form == "async" else cast("AsyncClient", Awaited(Client(url, **options)))


def pull_queue_of(client: AsyncClient, task_type: str, **options: Any) -> AsyncPullQueue:
    """Of the same form as its client."""
    if isinstance(client, Awaited):
        return cast("AsyncPullQueue", Awaited(PullQueue(client.blocking, task_type, **options)))
    return AsyncPullQueue(client, task_type, **options)
