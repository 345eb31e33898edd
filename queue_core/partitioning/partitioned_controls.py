"""Pauses and limits over several partitions. A pause is in force in all of them; a limit is kept by the ledger.

Each partition keeps the limit as it was set, which tells the ledger of it. Beside it lies the partition's share, which
only processes of earlier versions obey: they run beside newer ones while a service is upgraded.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from tideq.queue_core.controls import Controls

LIMITS = ("rate", "max")
Rules = Mapping[str, str]


class PartitionedControls(Controls):
    def __init__(self, parts: Sequence[Controls]) -> None:
        super().__init__(parts[0].scripts)
        self._parts = parts

    async def set_rules(self, scope: str, rules: Rules) -> None:
        count = len(self._parts)
        await asyncio.gather(
            *(part.set_rules(scope, divided(rules, number, count)) for number, part in enumerate(self._parts))
        )

    async def align(self) -> None:
        """What most partitions have that have anything, all have.

        A partition that is new knows nothing, and one that lost its store neither, which may be any of them.
        """
        kept = await asyncio.gather(*(part.rules() for part in self._parts))
        known = [each for each in kept if each]
        for scope in sorted({field.partition(":")[2] for each in kept for field in each}):
            votes = Counter(_words(whole(_rules_of(each, scope))) for each in known)
            wanted = dict(max(votes, key=lambda each: (votes[each], any(rule for _, rule in each))))
            for number, part in enumerate(self._parts):
                rules = divided(wanted, number, len(self._parts))
                if any(
                    kept[number].get(f"{kind}:{scope}", "") != rule for kind, rule in rules.items() if kind != "max"
                ):
                    await part.set_rules(scope, rules)


def _rules_of(kept: Rules, scope: str) -> dict[str, str]:
    return {kind: kept.get(f"{kind}:{scope}", "") for kind in ("pause", *LIMITS, *map(_whole, LIMITS))}


def _words(rules: Rules) -> tuple[tuple[str, str], ...]:
    return tuple(rules.items())


def divided(rules: Rules, number: int, count: int) -> dict[str, str]:
    """The rules of one scope as one partition keeps them. The whole names the number it was divided by."""
    shares = dict(rules)
    for kind in LIMITS:
        if kind in rules:
            shares[kind] = _share(kind, rules[kind], number, count)
            shares[_whole(kind)] = rules[kind] and f"{rules[kind]}/{count}"
    return shares


def whole(rules: Rules) -> dict[str, str]:
    """The rules of one scope as they were set. What was never divided is whole."""
    kept = {kind: rules.get(_whole(kind), "").partition("/")[0] or rules.get(kind, "") for kind in LIMITS}
    return {"pause": rules.get("pause", ""), **kept}


def _share(kind: str, rule: str, number: int, count: int) -> str:
    if not rule:
        return ""
    if kind == "rate":
        return repr(float(rule) / count)
    most = int(rule)
    return str(most // count + (number < most % count))


def _whole(kind: str) -> str:
    return f"whole_{kind}"
