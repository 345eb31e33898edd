"""Merges the heads of several partitions: which tasks come first, and how many of each partition. Pure."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tideq.queue_core.controls import WHOLE_QUEUE
from tideq.queue_core.polls.poll import Head

MergedHeads = list[tuple[Head, int]]
"""Heads with their partitions, in order."""


class Share(NamedTuple):
    """The part of a claim that one partition serves: so many tasks, and none worse than this rank."""

    partition: int
    wanted: int
    max_rank: int
    counts: Mapping[str, int]
    """By scope: of each task type, and of all."""


def best_of(heads: Mapping[int, Sequence[Head]], wanted: int, depth: int) -> MergedHeads:
    """The best `wanted` of all heads.

    A partition returned at most `depth` heads. Behind a full list there may be better tasks than the other partitions
    have, so nothing worse than the last of a full list is taken before the next peek.
    """
    certain = min((found[depth - 1] for found in heads.values() if len(found) >= depth), default=None)
    streams = [[(head, partition) for head in found] for partition, found in heads.items()]
    merged: MergedHeads = []
    for head, partition in heapq.merge(*streams):
        if len(merged) == wanted or (certain is not None and head > certain):
            break
        merged.append((head, partition))
    return merged


def scopes_of(heads: MergedHeads) -> dict[str, int]:
    """How many there are of each task type, and of all."""
    return {**Counter(head.task_type for head, _ in heads), WHOLE_QUEUE: len(heads)}


def within(heads: MergedHeads, permits: Mapping[str, int]) -> MergedHeads:
    """The heads that the permits allow, best first; a scope without permits is not limited."""
    left, allowed = dict(permits), MergedHeads()
    for head, partition in heads:
        scopes = [each for each in (WHOLE_QUEUE, head.task_type) if each in left]
        if all(left[each] > 0 for each in scopes):
            allowed.append((head, partition))
            left.update({each: left[each] - 1 for each in scopes})
    return allowed


def shares(heads: MergedHeads) -> list[Share]:
    by_partition: dict[int, MergedHeads] = {}
    for head, partition in heads:
        by_partition.setdefault(partition, []).append((head, partition))
    return [Share(each, len(some), some[-1][0].rank, scopes_of(some)) for each, some in by_partition.items()]


def depth_for(wanted: int, partition_count: int) -> int:
    """How many heads a peek requests: twice the even share and a few more, so that one peek mostly suffices."""
    return min(wanted, 2 * (wanted // partition_count) + 8)
