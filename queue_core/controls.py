"""Pauses and limits, for the whole queue or one task type.

Limits act on claims only: assigned and executing tasks are not touched. A rate is a token bucket that holds one
second's worth, so after an idle second as many tasks may be claimed at once as the rate allows in a second.

Every partition stores every rule. A pause is in force in each of them; the ledger enforces the limits of several
partitions. A partition that is away while a rule is set or lifted misses it, as does a new one or one that lost its
store. So with several partitions every rule has an instant, and the latest version holds. An instant is 1024 for each
millisecond of the partitions' clocks plus a random rest, and always above all instants read. Two processes that set one
rule in the same millisecond may draw the same instant: then the version that most partitions have holds. Rules that a
queue of one partition wrote have the instant 0.
"""

import asyncio
import contextlib
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from tideq.queue_core.duties import Duty
from tideq.queue_core.errors import InvalidRequest
from tideq.queue_core.name_rules import NAME
from tideq.queue_core.partitioning.queue_partitions import QueuePartitions, answers_of, raise_unless_away
from tideq.queue_core.scripts.replies import accepted, number, number_or_none, pairs, rate_or_none
from tideq.queue_core.scripts.runner import Scripts

WHOLE_QUEUE = "*"
MAX_REASON_LENGTH = 200
KINDS = ("pause", "rate", "max")
INSTANTS_PER_MS = 1_024
"""As in `set_rules.lua`; with 42 bits of milliseconds an instant is exact in a double."""
ALIGN_SECONDS = 10.0
"""From one comparison of all partitions to the next; seconds while one is away or has missed a change."""
Rules = Mapping[str, str]
"""By kind, of one scope; an empty one is none."""
Instants = Mapping[str, int]
"""By kind: when a rule was last set or lifted, of several partitions. Greater is later, and that is all it says."""

log = structlog.get_logger(__name__)


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

    def version(self, kind: str, scope: str) -> "Latest":
        field = f"{kind}:{scope}"
        return Latest(self.rules.get(field, ""), self.instants.get(field, 0))


class Latest(NamedTuple):
    """What holds of one kind of rule for one scope."""

    rule: str
    instant: int


class Controls:
    def __init__(self, partitions: QueuePartitions) -> None:
        self._partitions = partitions
        self._is_missed = asyncio.Event()
        """Set once a partition missed a change."""

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

    async def set_rules(self, scope: str, rules: Rules) -> None:
        """Set rules in the store's form, by kind; an empty value removes the rule.

        In force at once in all partitions that answer, and in one that is away soon after it is back. Raises
        Unavailable where none answers.
        """
        partitions = self._partitions
        instants = dict.fromkeys(rules, await self._next_instant(scope, rules)) if partitions.count > 1 else {}
        answers = await partitions.call(
            range(partitions.count), lambda scripts: write_rules(scripts, scope, rules, instants)
        )
        if missed := raise_unless_away(answers):
            self._is_missed.set()
            log.warning("pause or limit not yet in every partition", scope=scope, partitions_away=missed)

    async def _next_instant(self, scope: str, rules: Rules) -> int:
        answers = await self._read_all()
        raise_unless_away(answers)
        stored = answers_of(answers)
        known = [each.instants.get(f"{kind}:{scope}", 0) for each in stored for kind in rules]
        now_ms = max(each.now_ms for each in stored)
        return max(now_ms * INSTANTS_PER_MS + random.randrange(INSTANTS_PER_MS), *(each + 1 for each in known))

    async def _read_all(self) -> dict[int, StoredRules | Exception]:
        return await self._partitions.call(range(self._partitions.count), read_rules)

    async def align(self) -> None:
        """Write the latest version of each rule to all partitions; raises Unavailable if one does not answer."""
        if self._partitions.count == 1:
            return
        answers = await self._read_all()
        missed = raise_unless_away(answers)
        stored_rules = {each: stored for each, stored in answers.items() if isinstance(stored, StoredRules)}
        fields = {field for each in stored_rules.values() for field in (*each.rules, *each.instants)}
        for scope in sorted({field.partition(":")[2] for field in fields}):
            kinds = [kind for kind in KINDS if f"{kind}:{scope}" in fields]
            latest = {kind: _latest(list(stored_rules.values()), kind, scope) for kind in kinds}
            await asyncio.gather(
                *(self._write_latest(partition, scope, stored, latest) for partition, stored in stored_rules.items())
            )
        if missed:
            raise next(each for each in answers.values() if isinstance(each, Exception))

    async def keep_aligned(self, duty: Duty) -> None:
        while True:
            self._is_missed.clear()
            await self.align()
            duty.succeeded()
            with duty.waiting(), contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ALIGN_SECONDS):
                    await self._is_missed.wait()

    async def _write_latest(
        self, partition: int, scope: str, stored: StoredRules, latest: Mapping[str, Latest]
    ) -> None:
        outdated = {kind: each for kind, each in latest.items() if stored.version(kind, scope) != each}
        if outdated:
            rules = {kind: each.rule for kind, each in outdated.items()}
            instants = {kind: each.instant for kind, each in outdated.items()}
            await write_rules(self._partitions.scripts[partition], scope, rules, instants)
            log.info("pause or limit copied", partition=partition, scope=scope, kinds=sorted(outdated))

    async def rules(self) -> dict[str, str]:
        """Returns every rule of the first partition as `<kind>:<scope>` and its value in the store's form."""
        return (await read_rules(self._partitions.scripts[0])).rules


async def write_rules(scripts: Scripts, scope: str, rules: Rules, instants: Instants) -> None:
    """A stored rule with a later instant stays."""
    rows = [word for kind, rule in rules.items() for word in (kind, rule, instants.get(kind, ""))]
    accepted(await scripts.call("set_rules", scope=scope, rows=rows))


async def read_rules(scripts: Scripts) -> StoredRules:
    now, controls, instants = accepted(await scripts.call("list_rules"))
    now_ms = number(now)
    rules = {field: rule for field, rule in pairs(controls).items() if not _is_over(field, rule, now_ms)}
    return StoredRules(
        now_ms, rules, {field: number_or_none(instant, field) or 0 for field, instant in pairs(instants).items()}
    )


def _latest(stored_rules: Sequence[StoredRules], kind: str, scope: str) -> Latest:
    """The latest version. Without any instant: the one of most partitions that have any rule."""
    versions = [each.version(kind, scope) for each in stored_rules]
    instant = max(each.instant for each in versions)
    votes = Counter(
        each.rule
        for each, stored in zip(versions, stored_rules, strict=True)
        if each.instant == instant and (instant or stored.rules)
    )
    return Latest(max(votes, key=lambda rule: (votes[rule], bool(rule), rule)), instant)


def _is_over(field: str, rule: str, now_ms: int) -> bool:
    resume_at = re.match(r"\d+", rule) if field.startswith("pause:") else None
    return resume_at is not None and int(resume_at[0]) <= now_ms


def parse_controls(rules: dict[str, str]) -> dict[str, Control]:
    """Returns the controls by scope, from the fields of the store's hash."""
    scopes = sorted({field.partition(":")[2] for field in rules})
    return {scope: parse_control(scope, *(rules.get(f"{kind}:{scope}", "") for kind in KINDS)) for scope in scopes}


def parse_control(scope: str, pause: str, rate: str, most: str) -> Control:
    """A limit that is not a number is ignored; a pause without a readable end lasts until it is lifted."""
    per_second = rate_or_none(rate, scope) if rate else None
    limits = Limits(per_second, number_or_none(most, scope) if most else None)
    return Control(scope, _parse_pause(pause, scope) if pause else None, limits)


def _parse_pause(text: str, scope: str) -> Pause:
    resume_at, by, reason, *_ = [*text.split("|", 2), "", ""]
    return Pause(number_or_none(resume_at, scope) if resume_at else None, by, reason)
