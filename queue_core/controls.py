"""Pauses and limits, for the whole queue or one task type.

Limits act on claims only: assigned and executing tasks are not touched. A rate is a token bucket that holds one
second's worth, so after an idle second as many tasks may be claimed at once as the rate allows in a second.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tideq.queue_core.duties import Duty
from tideq.queue_core.errors import InvalidRequest
from tideq.queue_core.name_rules import NAME
from tideq.queue_core.scripts.replies import accepted, number, number_or_none, pairs, rate_or_none
from tideq.queue_core.scripts.runner import Scripts

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
    """The pause and the limits of one scope: a task type, or `*` for the whole queue."""

    scope: str
    pause: Pause | None
    limits: Limits


class StoredRules(NamedTuple):
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
        """Stop claims of one type, or of all, until `resume` or until the given instant."""
        if len(reason) > MAX_REASON_LENGTH:
            raise InvalidRequest("reason", f"longer than {MAX_REASON_LENGTH} characters")
        resume_at = "" if resume_at_ms is None else resume_at_ms
        await self._set(task_type, pause=f"{resume_at}|{by.replace('|', ' ')}|{reason}")

    async def resume(self, task_type: str | None = None) -> None:
        await self._set(task_type, pause="")

    async def limit(
        self, task_type: str | None = None, *, tasks_per_second: float = 0, max_executing: int | None = None
    ) -> None:
        """Replace both limits of a scope; a rate of 0 and a maximum of None are no limit."""
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
        """Set rules in the store's form, by kind; an empty value removes the rule.

        A stored rule with a later instant stays.
        """
        rows = [
            word
            for kind, rule in rules.items()
            for word in (kind, rule, instants[kind.removeprefix("whole_")] if instants else "")
        ]
        accepted(await self.scripts.call("set_rules", scope=scope, rows=rows))

    async def align(self) -> None:
        """Make all partitions agree; nothing to do for a single one."""

    async def keep_aligned(self, duty: Duty) -> None:
        """For ever."""
        duty.succeeded()
        with duty.waiting():
            await asyncio.Event().wait()

    async def rules(self) -> dict[str, str]:
        """Returns every rule as `<kind>:<scope>` and its value in the store's form."""
        return (await self.stored()).rules

    async def stored(self) -> StoredRules:
        now, controls, instants = accepted(await self.scripts.call("list_rules"))
        now_ms = number(now)
        rules = {field: rule for field, rule in pairs(controls).items() if not _is_over(field, rule, now_ms)}
        return StoredRules(
            now_ms, rules, {field: number_or_none(instant, field) or 0 for field, instant in pairs(instants).items()}
        )


def _is_over(field: str, rule: str, now_ms: int) -> bool:
    resume_at = re.match(r"\d+", rule) if field.startswith("pause:") else None
    return resume_at is not None and int(resume_at[0]) <= now_ms


def parse_controls(rules: dict[str, str]) -> dict[str, Control]:
    """Returns the controls by scope, from the fields of the store's hash."""
    scopes = sorted({field.partition(":")[2] for field in rules})
    return {
        scope: parse_control(
            scope, rules.get(f"pause:{scope}", ""), _whole(rules, "rate", scope), _whole(rules, "max", scope)
        )
        for scope in scopes
    }


def _whole(rules: dict[str, str], kind: str, scope: str) -> str:
    """Returns the limit as it was set: a partition keeps its share under `kind` and the whole limit beside it."""
    return rules.get(f"whole_{kind}:{scope}", "").partition("/")[0] or rules.get(f"{kind}:{scope}", "")


def parse_control(scope: str, pause: str, rate: str, most: str) -> Control:
    """A limit that is not a number is ignored; a pause without a readable end lasts until it is lifted."""
    per_second = rate_or_none(rate, scope) if rate else None
    limits = Limits(per_second, number_or_none(most, scope) if most else None)
    return Control(scope, _parse_pause(pause, scope) if pause else None, limits)


def _parse_pause(text: str, scope: str) -> Pause:
    resume_at, by, reason, *_ = [*text.split("|", 2), "", ""]
    return Pause(number_or_none(resume_at, scope) if resume_at else None, by, reason)
