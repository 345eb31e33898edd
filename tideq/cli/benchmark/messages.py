"""What the processes of a run are told to do and what they tell. Travels as one line of JSON each way.

Instants are of the monotonic clock, in seconds: processes of one machine share it.
"""

import msgspec


class Target(msgspec.Struct, frozen=True):
    url: str
    api_key: str
    task_type: str
    """Also the capability that its tasks ask for, so that workers for any type leave them alone."""


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Hand in so many tasks, as fast as it goes."""

    count: int
    batch: int
    connections: int
    payload_bytes: int


class Pace(msgspec.Struct, frozen=True, tag=True):
    """Hand in tasks one by one at an even pace, and wait for the end of some of them."""

    count: int
    per_second: float
    payload_bytes: int
    waits_every: int = 5


class Work(msgspec.Struct, frozen=True, tag=True):
    """Do what there is to do, until told to rest."""


class Rest(msgspec.Struct, frozen=True, tag=True):
    """Take nothing more, and tell what was done since `Work`."""


Order = Submit | Pace | Work | Rest


class Ready(msgspec.Struct, frozen=True, tag=True):
    pass


class Progress(msgspec.Struct, frozen=True, tag=True):
    count: int


class Submitted(msgspec.Struct, frozen=True, tag=True):
    count: int
    began: float
    ended: float
    cpu_seconds: float
    answer_ms: list[float]
    """How long each call took."""
    round_trip_ms: list[float]
    """From submission to having read the end of the task, of those that were waited for."""


class Worked(msgspec.Struct, frozen=True, tag=True):
    count: int
    began: float
    cpu_seconds: float
    moments: dict[int, int]
    """How many were handled in which millisecond."""
    pickup_ms: list[float]
    """From submission to the handler's first line, of tasks that said when they were submitted."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """`status` is 0 where nobody answered."""

    status: int
    message: str


Report = Ready | Progress | Submitted | Worked | Failed
