"""Merging the heads of several partitions: whose tasks come first, and how many of each. Pure."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tideq.queue_core.controls import WHOLE_QUEUE
from tideq.queue_core.polls.poll import Head

Found = list[tuple[Head, int]]
"""Heads with their partitions, in order."""


class Share(NamedTuple):
    """What to take from one partition: so many, and none worse than this rank."""

    partition: int
    wanted: int
    max_rank: int
    counts: Mapping[str, int]
    """By scope: of each task type, and of all."""


def best_of(heads: Mapping[int, Sequence[Head]], wanted: int, depth: int) -> Found:
    """The best `wanted` of all heads.

    A partition told of at most `depth`: behind as many there may be more that are better than what others have, so
    nothing worse than the last of them is taken before looking again.
    """
    certain = min((found[depth - 1] for found in heads.values() if len(found) >= depth), default=None)
    streams = [[(head, partition) for head in found] for partition, found in heads.items()]
    found: Found = []
    for head, partition in heapq.merge(*streams):
        if len(found) == wanted or (certain is not None and head > certain):
            break
        found.append((head, partition))
    return found


def scopes_of(found: Found) -> dict[str, int]:
    """How many there are of each task type, and of all."""
    return {**Counter(head.task_type for head, _ in found), WHOLE_QUEUE: len(found)}


def within(found: Found, permits: Mapping[str, int]) -> Found:
    """Those that permits let out, the best first; a scope without permits is not limited."""
    left, allowed = dict(permits), Found()
    for head, partition in found:
        scopes = [each for each in (WHOLE_QUEUE, head.task_type) if each in left]
        if all(left[each] > 0 for each in scopes):
            allowed.append((head, partition))
            left.update({each: left[each] - 1 for each in scopes})
    return allowed


def shares(found: Found) -> list[Share]:
    """The same by partition."""
    by_partition: dict[int, Found] = {}
    for head, partition in found:
        by_partition.setdefault(partition, []).append((head, partition))
    return [Share(each, len(some), some[-1][0].rank, scopes_of(some)) for each, some in by_partition.items()]


def depth_for(wanted: int, partition_count: int) -> int:
    """How many heads to ask each for: twice its even share and a little, so that one look mostly suffices."""
    return min(wanted, 2 * (wanted // partition_count) + 8)
