"""Pauses and limits over several partitions. A pause is in force in each of them; the ledger enforces a limit.

Each partition stores the limit as it was set and passes it to the ledger. Beside it lies the partition's share, which
only processes of earlier versions obey: they run beside newer ones during an upgrade.

A partition that is away while a rule is set or lifted misses it, as does a new one or one that lost its store. So every
rule has an instant, and of the partitions' versions of a rule the latest holds. An instant is 1024 for each
millisecond of the partitions' clocks plus a random rest, and always above all instants read. Two processes that set one
rule in the same millisecond may draw the same instant: then the version that most partitions have holds. Rules written
before instants existed, or by a queue of one partition, have the instant 0.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog

from tideq.queue_core.controls import Controls, Instants, Rules, StoredRules
from tideq.queue_core.duties import Duty
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.partitioning.partition_health import PartitionHealth

LIMITS = ("rate", "max")
INSTANTS_PER_MS = 1_024
"""As in `control.lua`; with 42 bits of milliseconds an instant is exact in a double."""
ALIGN_SECONDS = 10.0
"""From one look at all partitions to the next. While one is away, or has missed something, it is seconds."""

log = structlog.get_logger(__name__)


class Latest(NamedTuple):
    """What holds of one kind of rule for one scope."""

    rule: str
    instant: int


class PartitionedControls(Controls):
    def __init__(self, parts: Sequence[Controls], health: PartitionHealth) -> None:
        super().__init__(parts[0].scripts)
        self._parts = parts
        self._health = health
        self._is_missed = asyncio.Event()
        """Set once a partition did not hear of something."""

    async def set_rules(self, scope: str, rules: Rules, instants: Instants | None = None) -> None:
        """In force at once in all partitions that answer, and in one that is away soon after it is back.

        Raises Unavailable where none answers.
        """
        instants = instants or dict.fromkeys(rules, await self._next_instant(scope, rules))
        count = len(self._parts)
        answers = await self._health.call(
            range(count), lambda each: self._parts[each].set_rules(scope, divided(rules, each, count), instants)
        )
        if missed := _away(answers):
            self._is_missed.set()
            log.warning("pause or limit not yet in every partition", scope=scope, partitions_away=missed)

    async def _next_instant(self, scope: str, rules: Rules) -> int:
        stored = await self._stored()
        known = [each.instants.get(f"{kind}:{scope}", 0) for each in stored.values() for kind in rules]
        now_ms = max(each.now_ms for each in stored.values())
        return max(now_ms * INSTANTS_PER_MS + random.randrange(INSTANTS_PER_MS), *(each + 1 for each in known))

    async def align(self) -> None:
        """Write the latest version of each rule to all partitions; raises Unavailable if one does not answer."""
        answers = await self._health.call(range(len(self._parts)), lambda each: self._parts[each].stored())
        missed = _away(answers)
        stored_rules = {each: stored for each, stored in answers.items() if isinstance(stored, StoredRules)}
        fields = {field for each in stored_rules.values() for field in (*_plain(each.rules), *each.instants)}
        for scope in sorted({field.partition(":")[2] for field in fields}):
            kinds = [kind for kind in ("pause", *LIMITS) if f"{kind}:{scope}" in fields]
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
        count = len(self._parts)
        outdated = {kind: each for kind, each in latest.items() if _is_outdated(stored, kind, scope, each, count)}
        if outdated:
            rules = divided({kind: each.rule for kind, each in outdated.items()}, partition, count)
            await self._parts[partition].set_rules(
                scope, rules, {kind: each.instant for kind, each in outdated.items()}
            )
            log.info("pause or limit copied", partition=partition, scope=scope, kinds=sorted(outdated))

    async def _stored(self) -> dict[int, StoredRules]:
        answers = await self._health.call(range(len(self._parts)), lambda each: self._parts[each].stored())
        _away(answers)
        return {each: stored for each, stored in answers.items() if isinstance(stored, StoredRules)}


def _away(answers: Mapping[int, object]) -> list[int]:
    """Returns the partitions that do not answer. Raises any other failure, and the first if no partition answers."""
    failures = {partition: each for partition, each in answers.items() if isinstance(each, Exception)}
    for error in failures.values():
        if not isinstance(error, Unavailable) or len(failures) == len(answers):
            raise error
    return list(failures)


def _plain(rules: Rules) -> list[str]:
    """The fields of rules as they were set, divided or not."""
    return [field.removeprefix("whole_") for field in rules]


def _latest(stored_rules: Sequence[StoredRules], kind: str, scope: str) -> Latest:
    """The latest version. Without any instant: the one of most partitions that have any rule."""
    field = f"{kind}:{scope}"
    instant = max(each.instants.get(field, 0) for each in stored_rules)
    latest = [each for each in stored_rules if each.instants.get(field, 0) == instant and (instant or each.rules)]
    votes = Counter(_whole(each, kind, scope) for each in latest)
    return Latest(max(votes, key=lambda rule: (votes[rule], bool(rule), rule)), instant)


def _is_outdated(stored: StoredRules, kind: str, scope: str, latest: Latest, count: int) -> bool:
    if stored.instants.get(f"{kind}:{scope}", 0) != latest.instant or _whole(stored, kind, scope) != latest.rule:
        return True
    divisor = stored.rules.get(f"whole_{kind}:{scope}", "").partition("/")[2]
    return kind in LIMITS and bool(latest.rule) and int(divisor or 0) < count


def _whole(stored: StoredRules, kind: str, scope: str) -> str:
    """A rule as it was set. A limit that was never divided is whole."""
    divided_rule = stored.rules.get(f"whole_{kind}:{scope}", "")
    return divided_rule.partition("/")[0] or stored.rules.get(f"{kind}:{scope}", "")


def divided(rules: Rules, number: int, count: int) -> dict[str, str]:
    """The rules of one scope as one partition stores them. The whole limit names the number it was divided by."""
    shares = dict(rules)
    for kind in LIMITS:
        if kind in rules:
            shares[kind] = _share(kind, rules[kind], number, count)
            shares[f"whole_{kind}"] = rules[kind] and f"{rules[kind]}/{count}"
    return shares


def _share(kind: str, rule: str, number: int, count: int) -> str:
    if not rule:
        return ""
    if kind == "rate":
        return repr(float(rule) / count)
    most = int(rule)
    return str(most // count + (number < most % count))
