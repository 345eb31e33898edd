"""Every key name. All of one queue partition share a hash tag, so every script stays in one cluster slot.

Persisted. To change a key's meaning, give it a new name, write both for one release, then drop the old one.
The comments are the key map in README.md; a test keeps them equal.
"""

import binascii
import functools
import itertools
from typing import NamedTuple

SLOTS = 16_384
WINDOW = SLOTS // 256


class KeyDoc(NamedTuple):
    suffix: str
    type: str
    meaning: str


KEYS: dict[str, KeyDoc] = {
    "meta": KeyDoc(
        "meta",
        "hash",
        "epoch, format, last instant, clock steps and offset, lanes version, memory flag, until when polls are woken",
    ),
    "queue": KeyDoc("queue", "zset", "the one sorted set: every live task, by score"),
    "records": KeyDoc("records", "hash", "task id to record, the changing half of a task"),
    "definitions": KeyDoc("definitions", "hash", "task id to definition, the half that never changes"),
    "results": KeyDoc("results", "hash", "task id to result, of completed tasks"),
    "expiring": KeyDoc(
        "expiring", "zset", "finished tasks and idempotency keys, a batch a member, by when the store may delete them"
    ),
    "heads": KeyDoc("heads", "zset", "lanes that may hold ready tasks, by a lower bound of their best rank"),
    "lanes": KeyDoc("lanes", "hash", "lane signature to lane number"),
    "lane_names": KeyDoc("lane_names", "hash", "lane number to lane signature"),
    "lane_idle": KeyDoc("lane_idle", "zset", "lanes that ran empty, by when"),
    "lane_quota": KeyDoc("lane_quota", "hash", "lanes opened today, by client"),
    "retired_lanes": KeyDoc(
        "retired_lanes", "zset", "earlier signatures of lanes that have another one now, by the instant of the change"
    ),
    "served_lanes": KeyDoc(
        "served_lanes", "hash", "worker profile to the lanes it serves, with the lanes version of that list"
    ),
    "counts": KeyDoc("counts", "hash", "live tasks by state, and by lane and state"),
    "ages": KeyDoc("ages", "hash", "waiting tasks by priority and the minute from which on they may run"),
    "ended": KeyDoc(
        "ended",
        "hash",
        "ended tasks by type and last state, rare types together as `*`; since when counted, or when corrected",
    ),
    "recent": KeyDoc("recent", "hash", "event counts of the last hour, in buckets of ten seconds or a minute"),
    "totals": KeyDoc("totals", "hash", "recoveries by kind, since the store was created"),
    "controls": KeyDoc("controls", "hash", "pauses and limits"),
    "control_instants": KeyDoc(
        "control_instants", "hash", "one of several partitions: when each pause and limit was last set or lifted"
    ),
    "buckets": KeyDoc("buckets", "hash", "rate limits: theoretical arrival time by task type or client"),
    "usage": KeyDoc("usage", "hash", "one of several partitions: tasks ever claimed and returned under each limit"),
    "ledger": KeyDoc("ledger", "hash", "partition 0 of several: tasks that each limit of the queue has allowed"),
    "grants": KeyDoc("grants", "hash", "partition 0 of several: permits of running calls, with a deadline"),
    "unreadable": KeyDoc(
        "unreadable", "zset", "live tasks set aside because they cannot be read, by when to try them again"
    ),
    "dead": KeyDoc("dead", "zset", "dead letters, by when they died"),
    "outbox": KeyDoc("outbox", "stream", "every transition, until history has it"),
    "flush_request": KeyDoc("flush_request", "stream", "the latest flush request: a caller waits for history"),
    "monitor_cursor": KeyDoc("monitor_cursor", "hash", "the monitors' position in the outbox"),
    "backoffs": KeyDoc("backoffs", "zset", "retries whose backoff the monitors have not published yet, by its end"),
    "workers": KeyDoc("workers", "zset", "workers, by the instant their heartbeat is due"),
    "dead_workers": KeyDoc("dead_workers", "zset", "dead workers, by when they were declared dead"),
    "duties": KeyDoc("duties", "hash", "each process's latest report on its background duties"),
    "audit": KeyDoc("audit", "stream", "the audit log of administrative actions"),
    "access_keys": KeyDoc("access_keys", "hash", "access keys of callers: key id to name, role and digest"),
}

PREFIXES: dict[str, KeyDoc] = {
    "attempt_notes": KeyDoc(
        "attempt_notes:",
        "hash",
        "errors and progress of a task's attempts: e<attempt> an error, dropped the number of deleted ones, p progress",
    ),
    "worker": KeyDoc("worker:", "hash", "one worker: its declaration and state"),
    "worker_tasks": KeyDoc("worker_tasks:", "set", "tasks a worker holds"),
    "cancellations": KeyDoc("cancellations:", "zset", "attempts that a worker should stop, by when"),
    "poll": KeyDoc("poll:", "string", "tasks of the last reply to a poll id"),
    "idempotency": KeyDoc("idempotency:", "string", "task and fingerprint of an idempotency key"),
}


class Keys:
    """The key names of one partition of one queue."""

    def __init__(self, queue_name: str = "default", partition: int = 0) -> None:
        self.tag = f"tideq:{{{hash_tag(queue_name, partition)}}}:"
        self.wake_channel = self.tag + "wake"

    def key(self, name: str) -> str:
        return self.tag + KEYS[name].suffix

    def prefix(self, name: str) -> str:
        return self.tag + PREFIXES[name].suffix


@functools.cache
def hash_tag(queue_name: str, partition: int) -> str:
    """Returns a hash tag that spreads partitions evenly over a cluster's slots, whatever their number.

    Plain names would leave half of 8 nodes without any of 16 partitions. So a salt is counted up until the slot lies in
    the window of partition p: p's bits in reverse, counted from the slot of partition 0. Two partitions are then half
    of all slots apart, four a quarter, and so on; a growing number of partitions renames none.
    """
    first = f"{queue_name}:0"
    if partition == 0:
        return first
    wanted = slot_of(first) // WINDOW + int(f"{partition:08b}"[::-1], 2)
    tags = (f"{queue_name}:{partition}:{salt:x}" for salt in itertools.count())
    return next(tag for tag in tags if slot_of(tag) // WINDOW == wanted % (SLOTS // WINDOW))


def slot_of(tag: str) -> int:
    """Returns the cluster slot of all keys with this hash tag."""
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS
