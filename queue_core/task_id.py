"""Task ids: UUIDv7 whose byte order is submission order within a process, and which carry their partition.

    48 bits milliseconds | version | 12 bits counter | variant | 14 bits counter | 8 bits partition | 40 bits random

An id finds its keys without a look-up, because the partition sits inside it. The milliseconds make ids sort, and
history keeps and drops tasks by them: those of a queue are the store's (`StoreTime`), never a process's. Randomness
is drawn once a millisecond: it keeps processes apart, while the counter keeps the ids of one process apart. Ids are
no secrets.
"""

import secrets
import threading
import time
import uuid
from collections.abc import Callable

COUNTER_BITS = 26
MAX_COUNTER = (1 << COUNTER_BITS) - 1


class TaskIds:
    """Makes ids for one partition or several, strictly increasing however the clock behaves.

    Without a clock they are for submitters, who choose ids by their own.
    """

    def __init__(self, partition: int = 0, clock_ms: Callable[[], int] | None = None) -> None:
        self._partition = partition
        self._clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self._last_ms = 0
        self._counter = 0
        self._random = 0
        self._lock = threading.Lock()

    def new(self) -> str:
        with self._lock:
            self._advance()
            return _compose(self._last_ms, self._counter, self._partition, self._random)

    def many(self, count: int, partition: int | None = None) -> list[str]:
        """As `new` so many times, at a third of the price: what the ids of one millisecond share is written once."""
        with self._lock:
            self._advance()
            if self._counter + count > MAX_COUNTER:
                self._last_ms, self._counter = self._last_ms + 1, 0
            first, self._counter = self._counter, self._counter + count - 1
            own = self._partition if partition is None else partition
            example = _compose(self._last_ms, first, own, self._random)
        return [example] if count == 1 else _counted(example, first, count)

    def _advance(self) -> None:
        now_ms = self._clock_ms()
        if now_ms > self._last_ms:
            # A random start leaves half the range to count in: ids of two processes rarely share a counter.
            self._last_ms, self._counter = now_ms, secrets.randbits(COUNTER_BITS - 1)
            self._random = secrets.randbits(40)
        elif self._counter < MAX_COUNTER:
            self._counter += 1
        else:
            self._last_ms, self._counter = self._last_ms + 1, 0


def made_together(last_id: str, count: int) -> list[str]:
    """What `many` gave for so many, by the last of them."""
    counter = int(last_id[15:18], 16) << 14 | int(last_id[19:23], 16) & 0x3FFF
    return _counted(last_id, counter - count + 1, count)


def partition_of(task_id: str) -> int:
    return (uuid.UUID(task_id).int >> 40) & 0xFF


def is_task_id(text: str) -> bool:
    """Whether this is an id as we write them: lower case, with dashes, version 7."""
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        return False
    return str(parsed) == text and parsed.version == 7


def _counted(example: str, first: int, count: int) -> list[str]:
    """Ids that differ from the example by their counter alone."""
    head, tail = example[:15], example[23:]
    return [f"{head}{n >> 14:03x}-{0x8000 | n & 0x3FFF:04x}{tail}" for n in range(first, first + count)]


def _compose(now_ms: int, counter: int, partition: int, random: int) -> str:
    high = now_ms << 16 | 0x7000 | counter >> 14
    low = 0b10 << 62 | (counter & 0x3FFF) << 48 | partition << 40 | random
    # Spelt out here: uuid.UUID costs three times as much as all the rest of making an id.
    digits = f"{high:016x}{low:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
