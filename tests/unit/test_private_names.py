"""What the code uses of other libraries without a promise of theirs: an upgrade that takes it away fails here."""

from typing import Any

import hiredis
import pytest
import redis.asyncio as redis
from redis._parsers.base import BaseParser
from redis.asyncio.cluster import RedisCluster

untyped: Any = hiredis


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (redis.Connection(), "_writer"),
        (redis.Connection(), "pack_command"),
        (redis.Connection(), "send_packed_command"),
        (redis.ConnectionPool(), "_available_connections"),
        (redis.ConnectionPool(), "connection_class"),
        (BaseParser, "parse_error"),
        (RedisCluster, "get_node_from_key"),
        (hiredis, "PushNotification"),
        (hiredis, "pack_command"),
    ],
)
async def test_a_private_name_is_still_there(thing: object, name: str) -> None:
    assert hasattr(thing, name), f"{thing} has no {name} any more: adapt what uses it before upgrading"


def test_the_reader_still_says_when_an_answer_is_not_whole() -> None:
    rest = object()

    assert untyped.Reader(notEnoughData=rest).gets() is rest
