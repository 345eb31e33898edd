"""What a load process is told to do, and what it tells afterwards. Travels as one line of JSON each way."""

import msgspec

BATCH = 100


class Where(msgspec.Struct, frozen=True):
    redis_url: str
    database_url: str
    queue_name: str


class Lives(msgspec.Struct, frozen=True, tag=True):
    """Whole lives through the engine, each batch from submission to result before its flow takes the next."""

    tasks: int
    batch: int = BATCH
    flows: int = 2
    tasks_per_second: float = 0.0
    """Of all flows together; 0 for as fast as it goes."""


class Steps(msgspec.Struct, frozen=True, tag=True):
    """The same lives, but all submissions first, then all claims, starts and results: no life fits into one batch."""

    tasks: int
    batch: int = BATCH


class Failures(msgspec.Struct, frozen=True, tag=True):
    """Lives of tasks with two tags, which end with an error."""

    tasks: int
    batch: int = BATCH


class Waits(msgspec.Struct, frozen=True, tag=True):
    """Tasks that stay: one in twenty hidden until later, one in a hundred started by a worker, the rest ready."""

    tasks: int
    batch: int = 1_000


Work = Lives | Steps | Failures | Waits


class Job(msgspec.Struct, frozen=True):
    where: Where
    work: Work


class Done(msgspec.Struct, frozen=True):
    tasks: int
    seconds: float
