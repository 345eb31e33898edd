"""Pauses and limits over several partitions. A pause is in force in all of them; a limit is kept by the ledger.

Each partition keeps the limit as it was set, which tells the ledger of it. Beside it lies the partition's share, which
only processes of earlier versions obey: they run beside newer ones while a service is upgraded.

A partition that is away when a rule is set or lifted does not hear of it, and neither does one that is new or has lost
its store. So a rule has an instant: of what partitions say of one, the latest holds. An instant is 1024 for each
millisecond of the partitions' clocks and a random rest, and always above all that are known; two processes that set the
same rule in the same millisecond may have the same one, of which then what most partitions have holds. Rules of before
there were instants, and of when there was one partition, have 0.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog

from tideq.queue_core.duties import Duty
from tideq.queue_core.engine.controls import Controls, Instants, Rules, Standing
from tideq.queue_core.engine.partitions.health import Health
from tideq.queue_core.errors import Unavailable

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
    def __init__(self, parts: Sequence[Controls], health: Health) -> None:
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
        answers = await self._health.ask(
            range(count), lambda each: self._parts[each].set_rules(scope, divided(rules, each, count), instants)
        )
        if missed := _away(answers):
            self._is_missed.set()
            log.warning("pause or limit not yet in every partition", scope=scope, partitions_away=missed)

    async def _next_instant(self, scope: str, rules: Rules) -> int:
        standings = await self._standings()
        known = [each.instants.get(f"{kind}:{scope}", 0) for each in standings.values() for kind in rules]
        now_ms = max(each.now_ms for each in standings.values())
        return max(now_ms * INSTANTS_PER_MS + random.randrange(INSTANTS_PER_MS), *(each + 1 for each in known))

    async def align(self) -> None:
        """What was said last of each rule, all partitions have that answer; raises Unavailable if one does not."""
        answers = await self._health.ask(range(len(self._parts)), lambda each: self._parts[each].standing())
        missed = _away(answers)
        standings = {each: told for each, told in answers.items() if isinstance(told, Standing)}
        fields = {field for each in standings.values() for field in (*_plain(each.rules), *each.instants)}
        for scope in sorted({field.partition(":")[2] for field in fields}):
            kinds = [kind for kind in ("pause", *LIMITS) if f"{kind}:{scope}" in fields]
            latest = {kind: _latest(list(standings.values()), kind, scope) for kind in kinds}
            await asyncio.gather(
                *(self._teach(partition, scope, standing, latest) for partition, standing in standings.items())
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

    async def _teach(self, partition: int, scope: str, standing: Standing, latest: Mapping[str, Latest]) -> None:
        count = len(self._parts)
        news = {kind: each for kind, each in latest.items() if _is_news(standing, kind, scope, each, count)}
        if news:
            rules = divided({kind: each.rule for kind, each in news.items()}, partition, count)
            await self._parts[partition].set_rules(scope, rules, {kind: each.instant for kind, each in news.items()})
            log.info("pause or limit learnt", partition=partition, scope=scope, kinds=sorted(news))

    async def _standings(self) -> dict[int, Standing]:
        answers = await self._health.ask(range(len(self._parts)), lambda each: self._parts[each].standing())
        _away(answers)
        return {each: told for each, told in answers.items() if isinstance(told, Standing)}


def _away(answers: Mapping[int, object]) -> list[int]:
    """Which do not answer. Raises what else went wrong, and why if none answers."""
    failures = {partition: each for partition, each in answers.items() if isinstance(each, Exception)}
    for error in failures.values():
        if not isinstance(error, Unavailable) or len(failures) == len(answers):
            raise error
    return list(failures)


def _plain(rules: Rules) -> list[str]:
    """The fields of rules as they were set, whether they were ever divided or not."""
    return [field.removeprefix("whole_") for field in rules]


def _latest(standings: Sequence[Standing], kind: str, scope: str) -> Latest:
    """What was said last. Without any instant: what most have of those that know of anything at all."""
    field = f"{kind}:{scope}"
    instant = max(each.instants.get(field, 0) for each in standings)
    knowing = [each for each in standings if each.instants.get(field, 0) == instant and (instant or each.rules)]
    votes = Counter(_whole(each, kind, scope) for each in knowing)
    return Latest(max(votes, key=lambda rule: (votes[rule], bool(rule), rule)), instant)


def _is_news(standing: Standing, kind: str, scope: str, latest: Latest, count: int) -> bool:
    if standing.instants.get(f"{kind}:{scope}", 0) != latest.instant or _whole(standing, kind, scope) != latest.rule:
        return True
    divisor = standing.rules.get(f"whole_{kind}:{scope}", "").partition("/")[2]
    return kind in LIMITS and bool(latest.rule) and int(divisor or 0) < count


def _whole(standing: Standing, kind: str, scope: str) -> str:
    """A rule as it was set. What was never divided is whole."""
    divided_rule = standing.rules.get(f"whole_{kind}:{scope}", "")
    return divided_rule.partition("/")[0] or standing.rules.get(f"{kind}:{scope}", "")


def divided(rules: Rules, number: int, count: int) -> dict[str, str]:
    """The rules of one scope as one partition keeps them. The whole names the number it was divided by."""
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
