"""Orders to the processes of a run and their reports; each message is one line of JSON.

Instants are seconds of the monotonic clock, which the processes of one machine share.
"""

import msgspec


class BenchTarget(msgspec.Struct, frozen=True):
    url: str
    api_key: str
    task_type: str
    """Also the required capability of its tasks, so that workers that serve any type cannot claim them."""


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Submit `count` tasks as fast as possible."""

    count: int
    batch: int
    connections: int
    payload_bytes: int


class Pace(msgspec.Struct, frozen=True, tag=True):
    """Submit tasks one by one at an even rate, and wait for the result of some of them."""

    count: int
    per_second: float
    payload_bytes: int
    waits_every: int = 5


class Work(msgspec.Struct, frozen=True, tag=True):
    """Run tasks until `Rest`."""


class Rest(msgspec.Struct, frozen=True, tag=True):
    """Claim no more tasks, and report the tasks completed since `Work`."""


Order = Submit | Pace | Work | Rest


class Ready(msgspec.Struct, frozen=True, tag=True):
    pass


class BenchProgress(msgspec.Struct, frozen=True, tag=True):
    count: int


class BenchSubmitted(msgspec.Struct, frozen=True, tag=True):
    count: int
    began: float
    ended: float
    cpu_seconds: float
    answer_ms: list[float]
    """The duration of each call."""
    round_trip_ms: list[float]
    """From submission to reading the result, of the tasks that were waited for."""


class Worked(msgspec.Struct, frozen=True, tag=True):
    count: int
    began: float
    cpu_seconds: float
    moments: dict[int, int]
    """Completed tasks by millisecond."""
    pickup_ms: list[float]
    """From submission to the handler's first line, of tasks whose parameters have the submission time."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """`status` is 0 where there was no answer."""

    status: int
    message: str


Report = Ready | BenchProgress | BenchSubmitted | Worked | Failed
