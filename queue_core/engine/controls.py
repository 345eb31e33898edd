"""Pausing and limiting, for the whole queue or one task type.

Limits act on claims: what is assigned or executing already is left alone. A rate is a token bucket that holds
one second's worth, so after an idle second as many tasks may go out at once as the rate allows in a second.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tideq.queue_core.duties import Duty
from tideq.queue_core.engine.replies import accepted, known_number, known_rate, number, pairs
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.errors import InvalidRequest
from tideq.queue_core.names import NAME

WHOLE_QUEUE = "*"
MAX_REASON_LENGTH = 200
Rules = Mapping[str, str]
"""By kind, of one scope; an empty one is none."""
Instants = Mapping[str, int]
"""By kind: when a rule was last set or lifted, of several partitions. Greater is later, and that is all it says."""


class Pause(msgspec.Struct, frozen=True):
    resume_at_ms: int | None
    by: str
    reason: str


class Limits(msgspec.Struct, frozen=True):
    tasks_per_second: float | None = None
    max_executing: int | None = None


class Control(msgspec.Struct, frozen=True):
    """What is in force for one scope."""

    scope: str
    pause: Pause | None
    limits: Limits


class Standing(NamedTuple):
    """What one partition knows."""

    now_ms: int
    rules: dict[str, str]
    """By kind and scope. A pause that is over is none."""
    instants: dict[str, int]


class Controls:
    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    async def pause(
        self, task_type: str | None = None, *, reason: str = "", by: str = "", resume_at_ms: int | None = None
    ) -> None:
        """Hand out nothing more, of one type or at all, until resumed or until the given instant."""
        if len(reason) > MAX_REASON_LENGTH:
            raise InvalidRequest("reason", f"longer than {MAX_REASON_LENGTH} characters")
        resume_at = "" if resume_at_ms is None else resume_at_ms
        await self._set(task_type, pause=f"{resume_at}|{by.replace('|', ' ')}|{reason}")

    async def resume(self, task_type: str | None = None) -> None:
        await self._set(task_type, pause="")

    async def limit(
        self, task_type: str | None = None, *, tasks_per_second: float = 0, max_executing: int | None = None
    ) -> None:
        """Both limits of a scope at once; a rate of 0 and a missing maximum are no limit."""
        if not 0 <= tasks_per_second <= 1e6:
            raise InvalidRequest("tasks_per_second", f"{tasks_per_second} lies outside 0 … 1 000 000")
        if max_executing is not None and not 0 <= max_executing <= 10**9:
            raise InvalidRequest("max_executing", f"{max_executing} lies outside 0 … 10^9")
        rate = repr(tasks_per_second) if tasks_per_second else ""
        await self._set(task_type, rate=rate, max="" if max_executing is None else str(max_executing))

    async def _set(self, task_type: str | None, **settings: str) -> None:
        if task_type is not None and not NAME.fullmatch(task_type):
            raise InvalidRequest("task_type", f"{task_type!r} is not a name")
        await self.set_rules(task_type or WHOLE_QUEUE, settings)

    async def set_rules(self, scope: str, rules: Rules, instants: Instants | None = None) -> None:
        """As the store keeps them; an empty one is lifted. One that was said later than its instant stays as it is."""
        rows = [
            word
            for kind, rule in rules.items()
            for word in (kind, rule, instants[kind.removeprefix("whole_")] if instants else "")
        ]
        accepted(await self.scripts.call("control", scope=scope, rows=rows))

    async def align(self) -> None:
        """One partition agrees with itself."""

    async def keep_aligned(self, duty: Duty) -> None:
        """For ever."""
        duty.succeeded()
        with duty.waiting():
            await asyncio.Event().wait()

    async def rules(self) -> dict[str, str]:
        """Everything in force, by kind and scope, as the store keeps it."""
        return (await self.standing()).rules

    async def standing(self) -> Standing:
        now, controls, instants = accepted(await self.scripts.call("rules"))
        now_ms = number(now)
        rules = {field: rule for field, rule in pairs(controls).items() if not _is_over(field, rule, now_ms)}
        return Standing(
            now_ms, rules, {field: known_number(instant, field) or 0 for field, instant in pairs(instants).items()}
        )


def _is_over(field: str, rule: str, now_ms: int) -> bool:
    resume_at = re.match(r"\d+", rule) if field.startswith("pause:") else None
    return resume_at is not None and int(resume_at[0]) <= now_ms


def parse_controls(rules: dict[str, str]) -> dict[str, Control]:
    """What is in force, by scope, from the fields the store keeps."""
    scopes = sorted({field.partition(":")[2] for field in rules})
    return {
        scope: parse_control(
            scope, rules.get(f"pause:{scope}", ""), _whole(rules, "rate", scope), _whole(rules, "max", scope)
        )
        for scope in scopes
    }


def _whole(rules: dict[str, str], kind: str, scope: str) -> str:
    """A limit as it was set: with several partitions each has its share, and the whole beside it."""
    return rules.get(f"whole_{kind}:{scope}", "").partition("/")[0] or rules.get(f"{kind}:{scope}", "")


def parse_control(scope: str, pause: str, rate: str, most: str) -> Control:
    """What is no number limits nothing; a pause of any form is one, without an end unless it begins with that."""
    per_second = known_rate(rate, scope) if rate else None
    limits = Limits(per_second, known_number(most, scope) if most else None)
    return Control(scope, _parse_pause(pause, scope) if pause else None, limits)


def _parse_pause(text: str, scope: str) -> Pause:
    resume_at, by, reason, *_ = [*text.split("|", 2), "", ""]
    return Pause(known_number(resume_at, scope) if resume_at else None, by, reason)
