"""The plan of a run: the kinds of measurements and their sizes."""

import re
from collections.abc import Sequence

import msgspec

KINDS = ("enqueue", "process", "latency", "depth", "payload", "workers")
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmM]?)[bB]?")
FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}
MAX_BATCH = 1_000
MAX_BYTES = 32_000_000
"""All tasks of one payload size together, so that large payloads do not fill a small store."""
MAX_BODY_BYTES = 8_000_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    kinds: tuple[str, ...]
    tasks: int
    connections: int
    batch: int
    clients: int
    workers: int
    payload_bytes: int
    rate: float
    seconds: float
    depths: tuple[int, ...]
    payloads: tuple[int, ...]
    worker_counts: tuple[int, ...]

    @property
    def part(self) -> int:
        """Tasks of a step in a sweep, and of steps that submit one by one."""
        return max(self.tasks // 4, 1)

    @property
    def max_workers(self) -> int:
        return max((self.workers, *(self.worker_counts if "workers" in self.kinds else ())))

    def count_of(self, payload_bytes: int) -> int:
        return max(min(self.part, MAX_BYTES // payload_bytes), 1)

    def batch_of(self, payload_bytes: int) -> int:
        return max(min(self.batch, MAX_BODY_BYTES // payload_bytes), 1)


def checked(plan: Plan) -> Plan:
    """Returns the plan; raises ValueError with the option that is wrong."""
    if unknown := [kind for kind in plan.kinds if kind not in KINDS]:
        raise ValueError(f"--measure {unknown[0]!r} is unknown; use {', '.join(KINDS)}")
    _within("--tasks", [plan.tasks], 1, 10_000_000)
    _within("--connections", [plan.connections], 1, 1_000)
    _within("--batch", [plan.batch], 1, MAX_BATCH)
    _within("--clients", [plan.clients], 1, 64)
    _within("--workers and --worker-counts", [plan.workers, *plan.worker_counts], 1, 64)
    _within("--payload", plan.payloads, 1, 10_000_000)
    _within("--depth", plan.depths, 1, 100_000_000)
    _within("--rate", [plan.rate], 0.1, 100_000)
    _within("--seconds", [plan.seconds], 0.1, 3_600)
    return plan


def quantities(option: str, texts: Sequence[str]) -> tuple[int, ...]:
    """`1k,10k,1M` in ascending order; `0.1k` is 100."""
    return tuple(sorted({quantity(option, text) for text in texts}))


def quantity(option: str, text: str) -> int:
    found = QUANTITY.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{option} {text!r} is not a number like 500, 10k or 1M")
    return round(float(found[1]) * FACTORS[found[2].lower()])


def _within(option: str, values: Sequence[float], least: float, most: float) -> None:
    for value in values:
        if not least <= value <= most:
            raise ValueError(f"{option} {value:g} is not between {least:g} and {most:g}")
