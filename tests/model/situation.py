"""What the model test plays with: small budgets, three workers, three types. Plain data, for model and engine alike."""

from typing import NamedTuple


class Level(NamedTuple):
    offset_ms: int
    max_retries: int
    timeout_ms: int


class Backoff(NamedTuple):
    base_ms: int = 10_000
    multiplier: int = 2
    cap_ms: int = 30_000


class Profile(NamedTuple):
    types: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()


class Draft(NamedTuple):
    """A submission; what is `None` is the priority's default."""

    task_type: str
    priority: str
    needs: tuple[str, ...] = ()
    max_retries: int | None = None
    timeout_ms: int | None = None
    delay_ms: int = 0
    head_start_ms: int = 0
    key: str = ""
    backoff: Backoff = Backoff()

    @property
    def lane(self) -> tuple[str, tuple[str, ...]]:
        return self.task_type, self.needs


LEVELS = {"high": Level(0, 2, 60_000), "medium": Level(40_000, 1, 200_000), "low": Level(80_000, 0, 3_000_000)}
PROFILES = {"any": Profile(), "crawler": Profile(types=("crawl",)), "gpu": Profile(capabilities=("gpu",))}
TASK_TYPES = ("crawl", "resize", "train")
SCOPES = ("*", *TASK_TYPES)

ASSIGNMENT_MS = 30_000
HEARTBEAT_MS = 90_000
MAX_EXECUTION_MS = 5_000_000
KEY_TTL_MS = 900_000
RESULT_TTL_MS = 20_000
MAX_DELIVERIES = 2
MAX_LOSSES = 2
CIRCUIT_FAILURES, CIRCUIT_TRIALS = 2, 2
CIRCUIT_WINDOW_MS = CIRCUIT_OPEN_MS = 60_000
