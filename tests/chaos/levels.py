"""How long, how much and how bad: the sizes a run can have."""

from dataclasses import dataclass, field

from tests.chaos.faults import MIXED, Profile
from tests.chaos.site import STAFF, Staff


@dataclass(frozen=True)
class Level:
    name: str
    seconds: float
    fault_seconds: float
    """From one fault to the next, on average."""
    producers: int = 2
    batch_size: int = 12
    pause_seconds: float = 0.15
    hands: int = 3
    hand_share: float = 0.15
    """Of all tasks, for scripted workers; the rest is for real ones."""
    drain_seconds: float = 90
    slow_share: float = 0.05
    poison_share: float = 0.0005
    staff: Staff = field(default_factory=lambda: dict(STAFF))
    profile: Profile = field(default_factory=lambda: dict(MIXED))


SMOKE = Level("smoke", seconds=30, fault_seconds=1.6, batch_size=20, pause_seconds=0.08)
LONG = Level("long", seconds=1_800, fault_seconds=2.5, batch_size=100, pause_seconds=0.15)
SOAK = Level("soak", seconds=8 * 3_600, fault_seconds=20, batch_size=60, pause_seconds=0.25)
LEVELS = {level.name: level for level in (SMOKE, LONG, SOAK)}
