"""Merging the heads of several partitions: whose tasks come first, and how many of each. Pure."""

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tideq.queue_core.engine.polls import Head


class Share(NamedTuple):
    """What to take from one partition: so many, and none worse than this rank."""

    partition: int
    wanted: int
    max_rank: int


def shares(heads: Mapping[int, Sequence[Head]], wanted: int, depth: int) -> list[Share]:
    """The best `wanted` of all heads, by partition.

    A partition told of at most `depth`: behind as many there may be more that are better than what others have, so
    nothing worse than the last of them is taken before looking again.
    """
    certain = min((found[depth - 1] for found in heads.values() if len(found) >= depth), default=None)
    streams = [[(head, partition) for head in found] for partition, found in heads.items()]
    counts: dict[int, int] = {}
    worst: dict[int, int] = {}
    for taken, (head, partition) in enumerate(heapq.merge(*streams)):
        if taken == wanted or (certain is not None and head > certain):
            break
        counts[partition] = counts.get(partition, 0) + 1
        worst[partition] = head.rank
    return [Share(partition, count, worst[partition]) for partition, count in counts.items()]


def depth_for(wanted: int, partition_count: int) -> int:
    """How many heads to ask each for: twice its even share and a little, so that one look mostly suffices."""
    return min(wanted, 2 * (wanted // partition_count) + 8)
