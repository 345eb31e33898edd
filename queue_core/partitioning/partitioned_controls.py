"""Pauses and limits over several partitions. A pause is in force in each of them; the ledger enforces a limit.

Each partition stores the limit as it was set and passes it to the ledger. Beside it lies the partition's share, which
only processes of earlier versions obey: they run beside newer ones during an upgrade.
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
        """Writes to all partitions the rules that most of the partitions with any rules have.

        A new partition has no rules, and neither has one that lost its store, which may be any of them.
        """
        stored = await asyncio.gather(*(part.rules() for part in self._parts))
        nonempty = [each for each in stored if each]
        for scope in sorted({field.partition(":")[2] for each in stored for field in each}):
            votes = Counter(_items(whole(_rules_of(each, scope))) for each in nonempty)
            wanted = dict(max(votes, key=lambda each: (votes[each], any(rule for _, rule in each))))
            for number, part in enumerate(self._parts):
                rules = divided(wanted, number, len(self._parts))
                if any(
                    stored[number].get(f"{kind}:{scope}", "") != rule for kind, rule in rules.items() if kind != "max"
                ):
                    await part.set_rules(scope, rules)


def _rules_of(stored: Rules, scope: str) -> dict[str, str]:
    return {kind: stored.get(f"{kind}:{scope}", "") for kind in ("pause", *LIMITS, *map(_whole, LIMITS))}


def _items(rules: Rules) -> tuple[tuple[str, str], ...]:
    return tuple(rules.items())


def divided(rules: Rules, number: int, count: int) -> dict[str, str]:
    """The rules of one scope as one partition stores them. The whole limit names the number it was divided by."""
    shares = dict(rules)
    for kind in LIMITS:
        if kind in rules:
            shares[kind] = _share(kind, rules[kind], number, count)
            shares[_whole(kind)] = rules[kind] and f"{rules[kind]}/{count}"
    return shares


def whole(rules: Rules) -> dict[str, str]:
    """The rules of one scope as they were set. A limit that was never divided is whole."""
    limits = {kind: rules.get(_whole(kind), "").partition("/")[0] or rules.get(kind, "") for kind in LIMITS}
    return {"pause": rules.get("pause", ""), **limits}


def _share(kind: str, rule: str, number: int, count: int) -> str:
    if not rule:
        return ""
    if kind == "rate":
        return repr(float(rule) / count)
    most = int(rule)
    return str(most // count + (number < most % count))


def _whole(kind: str) -> str:
    return f"whole_{kind}"
