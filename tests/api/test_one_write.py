"""An answer's head and body are one write, and no head waits for a body that is not there."""

import asyncio
from typing import Any

import pytest

from tideq.api.one_write import InOneWrite


class Recording:
    """A connection that notes what it is told, a list a write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.writes.append(b"".join(parts))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


@pytest.fixture
def transport() -> Any:
    return Recording()


async def test_a_head_leaves_with_the_body_that_follows_at_once(transport: Any) -> None:
    answer = InOneWrite(transport, asyncio.get_running_loop())

    for part in (b"head", b"body", b"more"):
        answer.write(part)
    await asyncio.sleep(0)

    assert transport.writes == [b"headbody", b"more"]


async def test_a_head_whose_body_does_not_come_leaves_in_the_next_turn(transport: Any) -> None:
    answer = InOneWrite(transport, asyncio.get_running_loop())

    answer.write(b"head")
    await asyncio.sleep(0)
    answer.write(b"body")

    assert transport.writes == [b"head", b"body"]


async def test_closing_loses_no_head(transport: Any) -> None:
    answer = InOneWrite(transport, asyncio.get_running_loop())

    answer.write(b"head")
    answer.close()
    await asyncio.sleep(0)

    assert (transport.writes, answer.is_closing()) == ([b"head"], True)
