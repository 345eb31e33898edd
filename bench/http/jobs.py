"""The jobs of a client process and its report; each is one line of JSON."""

import msgspec

from bench.lifecycle import PAYLOAD, RESULT

SUBMISSION = {"task_type": "waits", "parameters": msgspec.Raw(PAYLOAD)}
LIFE = {"task_type": "lives", "parameters": msgspec.Raw(PAYLOAD)}
DONE = {"status": "completed", "result": msgspec.Raw(RESULT)}


class Repeat(msgspec.Struct, frozen=True, tag=True):
    """The same request repeatedly, on several connections at once."""

    port: int
    path: str
    body: str
    times: int
    connections: int = 16


class Lives(msgspec.Struct, frozen=True, tag=True):
    """Whole lives; each flow is a producer and a worker on one connection.

    A round is three requests: submit a batch; sync the results of the previous round and claim as many tasks; sync
    their starts.
    """

    port: int
    rounds: int
    batch: int = 100
    flows: int = 4
    rounds_per_second: float = 0.0
    """Of all flows together; 0 for as fast as possible."""


class Deliveries(msgspec.Struct, frozen=True, tag=True):
    """One task at a time to a waiting worker, beside workers that wait for another type."""

    port: int
    times: int
    bystanders: int = 0


Job = Repeat | Lives | Deliveries


class Done(msgspec.Struct, frozen=True):
    milliseconds: dict[str, list[float]]
    """The duration of each request, by its kind."""
