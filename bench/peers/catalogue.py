"""The peers: their packages, drivers, stores and settings.

`best` is the setting that a library's documentation recommends for throughput, or the fastest one measured; `common` is
ten tasks at a time and ten a fetch for all. A library ignores settings it does not have.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Ecosystem = Literal["python", "node", "ours"]
Store = Literal["redis", "postgres", "tideq", "tideq+history"]

COMMON: dict[str, Any] = {"concurrency": 10, "batch": 10, "bulk": 10}
FAST = ("hiredis==3.5.0", "uvloop==0.23.0")
"""Packages that their documentation recommends for speed."""


class Peer(msgspec.Struct, frozen=True):
    name: str
    driver: str
    ecosystem: Ecosystem
    store: Store
    best: Mapping[str, Any]
    """`concurrency`, `batch` (a fetch), `bulk` (tasks a bulk call), and settings of this library only."""
    requirements: tuple[str, ...] = ()
    is_slow: bool = False
    """Much slower than the others: one round is enough for a quick run."""
    processes: bool = True
    """False where only submission differs from another peer's."""

    common: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """Further settings that the `common` setting needs for this library."""

    def settings(self, kind: str) -> dict[str, Any]:
        return {**self.best, **COMMON, **self.common} if kind == "common" else dict(self.best)


def _python(name: str, pins: tuple[str, ...], store: Store = "redis", *, slow: bool = False, **best: Any) -> Peer:
    return Peer(name, f"{name.lower()}_driver.py", "python", store, best, (*pins, *FAST), slow)


def _node(name: str, driver: str, store: Store, **best: Any) -> Peer:
    return Peer(name, driver, "node", store, best)


OURS, PLAIN, LEAN = "TideQ", "TideQ, no history", "TideQ, lean client"
FLOOR, HTTP_FLOOR = "Redis list, no ack (floor)", "One write behind HTTP (floor)"
_OURS = {"concurrency": 1_000, "batch": 250, "bulk": 1_000}

PEERS = (
    Peer(OURS, "tideq_driver.py", "ours", "tideq+history", _OURS),
    Peer(PLAIN, "tideq_driver.py", "ours", "tideq", _OURS),
    Peer(LEAN, "lean_driver.py", "ours", "tideq+history", _OURS, processes=False),
    Peer(FLOOR, "floor.py", "python", "redis", {"bulk": 1_000}, ("redis==8.1.0", *FAST)),
    Peer(HTTP_FLOOR, "http_floor.py", "ours", "redis", {"bulk": 32}, processes=False),
    _node("BullMQ", "bullmq.mjs", "redis", concurrency=100, bulk=1_000),
    _node("graphile-worker", "graphile.mjs", "postgres", concurrency=10, batch=2_000, bulk=1_000),
    _node("pg-boss", "pgboss.mjs", "postgres", concurrency=1, batch=2_000, bulk=1_000),
    _python("Dramatiq", ("dramatiq[redis]==2.2.1",), concurrency=8, bulk=100),
    _python("taskiq", ("taskiq==0.13.0", "taskiq-redis==1.2.4"), concurrency=100, batch=100, bulk=100),
    _python("huey", ("huey==3.5.4", "redis==8.1.0"), concurrency=8, bulk=100),
    _python("SAQ", ("saq[redis]==0.26.4", "typing-extensions==4.16.0"), concurrency=50, bulk=100),
    _python("arq", ("arq==0.28.0",), slow=True, concurrency=500, batch=2_500, bulk=100, poll_seconds=0.01),
    _python("streaq", ("streaq==7.2.0",), slow=True, concurrency=32, batch=100, bulk=1_000),
    Peer(
        "Celery",
        "celery_driver.py",
        "python",
        "redis",
        {"concurrency": 1, "batch": 64, "bulk": 100, "pool": "solo"},
        ("celery[redis]==5.7.0", *FAST),
        is_slow=True,
        common={"pool": "threads", "batch": 1},
    ),
    _python("RQ", ("rq==2.12.0",), slow=True, concurrency=1, bulk=1_000),
    _python("Procrastinate", ("procrastinate==3.10.0",), "postgres", slow=True, concurrency=20, bulk=1_000),
)
