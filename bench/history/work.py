"""The job of a load process and its report; each is one line of JSON."""

import msgspec

BATCH = 100


class Where(msgspec.Struct, frozen=True):
    redis_url: str
    database_url: str
    queue_name: str


class Lives(msgspec.Struct, frozen=True, tag=True):
    """Whole lives through the engine; each flow takes one batch from submission to result, then the next."""

    tasks: int
    batch: int = BATCH
    flows: int = 2
    tasks_per_second: float = 0.0
    """Of all flows together; 0 for as fast as possible."""


class Steps(msgspec.Struct, frozen=True, tag=True):
    """All submissions first, then all claims, starts and results, so that no life fits into one batch of events."""

    tasks: int
    batch: int = BATCH


class Failures(msgspec.Struct, frozen=True, tag=True):
    """Whole lives of tasks that have two tags and fail."""

    tasks: int
    batch: int = BATCH


class Waits(msgspec.Struct, frozen=True, tag=True):
    """Tasks that stay live: one in twenty is delayed, one in a hundred is started, the rest is ready."""

    tasks: int
    batch: int = 1_000


Work = Lives | Steps | Failures | Waits


class Job(msgspec.Struct, frozen=True):
    where: Where
    work: Work


class Done(msgspec.Struct, frozen=True):
    tasks: int
    seconds: float
