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
        "epoch, format, last instant, steps of the clock, its offset, lanes version, memory pressure, end of waiting",
    ),
    "queue": KeyDoc("queue", "zset", "THE sorted set: every live task, by score"),
    "records": KeyDoc("records", "hash", "task id to record, the changing half of a task"),
    "definitions": KeyDoc("definitions", "hash", "task id to definition, the half that never changes"),
    "results": KeyDoc("results", "hash", "task id to result, of completed tasks"),
    "expiring": KeyDoc(
        "expiring", "zset", "finished tasks and idempotency keys, a batch a member, by when the store may forget them"
    ),
    "heads": KeyDoc("heads", "zset", "lanes that may hold ready tasks, by a lower bound of their best rank"),
    "lanes": KeyDoc("lanes", "hash", "lane signature to lane number"),
    "lane_names": KeyDoc("lane_names", "hash", "lane number to lane signature"),
    "lane_idle": KeyDoc("lane_idle", "zset", "lanes that ran empty, by when"),
    "lane_quota": KeyDoc("lane_quota", "hash", "lanes opened today, by client"),
    "retired_lanes": KeyDoc(
        "retired_lanes", "zset", "what lanes stood for before they were given to another signature, by when that was"
    ),
    "serving": KeyDoc(
        "serving", "hash", "worker profile to the lanes it serves, with the lanes version it was made for"
    ),
    "counts": KeyDoc("counts", "hash", "live tasks by state, and by lane and state"),
    "ages": KeyDoc("ages", "hash", "waiting tasks by priority and the minute from which on they may run"),
    "ended": KeyDoc(
        "ended",
        "hash",
        "tasks by type and the state they ended in, rare types together as `*`; since when, or when it was set right",
    ),
    "recent": KeyDoc("recent", "hash", "what happened lately, in buckets of ten seconds and of a minute"),
    "totals": KeyDoc("totals", "hash", "recoveries by kind, since the store began"),
    "controls": KeyDoc("controls", "hash", "pauses and limits"),
    "control_instants": KeyDoc(
        "control_instants", "hash", "one of several partitions: when each pause and limit was last set or lifted"
    ),
    "buckets": KeyDoc("buckets", "hash", "rate limits: theoretical arrival time by task type or client"),
    "usage": KeyDoc("usage", "hash", "one of several partitions: tasks ever taken and given back under each limit"),
    "ledger": KeyDoc("ledger", "hash", "partition 0 of several: what each limit of the queue has let out"),
    "grants": KeyDoc("grants", "hash", "partition 0 of several: permits of calls that are under way, with a deadline"),
    "unreadable": KeyDoc(
        "unreadable", "zset", "live tasks set aside because they cannot be read, by when to look at them again"
    ),
    "dead": KeyDoc("dead", "zset", "dead letters, by when they died"),
    "outbox": KeyDoc("outbox", "stream", "every transition, until history has it"),
    "haste": KeyDoc("haste", "stream", "the latest word of somebody who waits for history"),
    "journal": KeyDoc("journal", "hash", "how far the monitors have told what happened"),
    "backoffs": KeyDoc("backoffs", "zset", "retries whose wait the journal has not told yet, by when it ends"),
    "workers": KeyDoc("workers", "zset", "workers, by the instant their heartbeat is due"),
    "dead_workers": KeyDoc("dead_workers", "zset", "workers given up, by when"),
    "duties": KeyDoc("duties", "hash", "how each process's background duties did when it last said so"),
    "audit": KeyDoc("audit", "stream", "who paused, limited, drained, cleaned up or replayed what"),
    "access_keys": KeyDoc("access_keys", "hash", "who may talk to the service: key id to name, role and digest"),
}

PREFIXES: dict[str, KeyDoc] = {
    "notes": KeyDoc(
        "notes:",
        "hash",
        "what came with a task's attempts: e<attempt> for errors, dropped counts earlier ones, p for progress",
    ),
    "worker": KeyDoc("worker:", "hash", "one worker: what it declared and how it is"),
    "outcomes": KeyDoc(
        "outcomes:", "hash", "how a worker's latest attempts came out, as releases before `TIDEQ_CIRCUIT` count it"
    ),
    "held": KeyDoc("held:", "set", "tasks a worker holds"),
    "stops": KeyDoc("stops:", "zset", "attempts a worker should abandon, by when"),
    "poll": KeyDoc("poll:", "string", "what the last answer to a poll id handed out"),
    "idempotency": KeyDoc("idempotency:", "string", "task and fingerprint an idempotency key stands for"),
}


class Keys:
    """The names for one partition of one queue."""

    def __init__(self, queue_name: str = "default", partition: int = 0) -> None:
        self.tag = f"tideq:{{{hash_tag(queue_name, partition)}}}:"
        self.wake_channel = self.tag + "wake"

    def key(self, name: str) -> str:
        return self.tag + KEYS[name].suffix

    def prefix(self, name: str) -> str:
        return self.tag + PREFIXES[name].suffix


@functools.cache
def hash_tag(queue_name: str, partition: int) -> str:
    """Partitions spread evenly over a cluster's slots, whatever their number: growing it renames none.

    Names alone would not do: 16 of them leave half of 8 nodes without any. So a salt is counted up until the slot lies
    where partition p belongs, which is p's bits in reverse, from the slot of partition 0 on: the first two lie half of
    all slots apart, the first four a quarter, and so on.
    """
    first = f"{queue_name}:0"
    if partition == 0:
        return first
    wanted = slot_of(first) // WINDOW + int(f"{partition:08b}"[::-1], 2)
    tags = (f"{queue_name}:{partition}:{salt:x}" for salt in itertools.count())
    return next(tag for tag in tags if slot_of(tag) // WINDOW == wanted % (SLOTS // WINDOW))


def slot_of(tag: str) -> int:
    """The cluster's slot for all keys with this hash tag."""
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS
