"""How long, how much and how bad: the sizes a run can have."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chaos.faults import MIXED, Profile
from tests.chaos.site import STAFF, Staff

UPGRADE = "rolling_upgrade"


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
    has_upgrade: bool = False
    """Whether it begins with the earlier version, which is replaced under load, put back, and replaced for good."""

    @property
    def variables(self) -> str:
        """What chooses it."""
        left_out = MIXED.keys() - self.profile.keys()
        if LEVELS.get(self.name, self).has_upgrade and not self.has_upgrade:
            left_out |= {UPGRADE}
        without = ",".join(sorted(left_out))
        chosen = f"CHAOS_LEVEL={self.name} CHAOS_SECONDS={self.seconds:g} CHAOS_FAULT_SECONDS={self.fault_seconds:g}"
        return f"{chosen} CHAOS_WITHOUT={without}" if without else chosen


SMOKE = Level("smoke", seconds=32, fault_seconds=1.25, batch_size=20, pause_seconds=0.08)
LONG = Level("long", seconds=1_800, fault_seconds=2.5, batch_size=100, pause_seconds=0.15, has_upgrade=True)
SOAK = Level("soak", seconds=8 * 3_600, fault_seconds=20, batch_size=60, pause_seconds=0.25, has_upgrade=True)
LEVELS = {level.name: level for level in (SMOKE, LONG, SOAK)}


def chosen(environ: Mapping[str, str]) -> Level:
    """By CHAOS_LEVEL, and what else differs from it. Raises ValueError for a name that means nothing."""
    name = environ.get("CHAOS_LEVEL") or LONG.name
    if name not in LEVELS:
        raise ValueError(f"CHAOS_LEVEL is {name!r}; there are {', '.join(LEVELS)}")
    level = LEVELS[name]
    without = {each for each in environ.get("CHAOS_WITHOUT", "").replace(" ", "").split(",") if each}
    if unknown := without - {*level.profile, UPGRADE}:
        raise ValueError(f"CHAOS_WITHOUT names {min(unknown)!r}; there are {', '.join([*level.profile, UPGRADE])}")
    return dataclasses.replace(
        level,
        seconds=float(environ.get("CHAOS_SECONDS") or level.seconds),
        fault_seconds=float(environ.get("CHAOS_FAULT_SECONDS") or level.fault_seconds),
        profile={name: weight for name, weight in level.profile.items() if name not in without},
        has_upgrade=level.has_upgrade and UPGRADE not in without,
    )
