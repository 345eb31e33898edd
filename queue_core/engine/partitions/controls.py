"""Pauses and limits over several partitions. A pause is in force in all of them; a limit is divided.

Each partition keeps its share, which its claims obey, and the whole, from which shares are made anew when the number of
partitions grows. A rate is divided evenly. Of slots each gets a whole number: with fewer slots than partitions some
have none.
"""

import asyncio
from collections.abc import Mapping, Sequence

from tideq.queue_core.engine.controls import Controls

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
        """What partition 0 has, all have: a partition that is new, or another number of them, changes every share."""
        kept = await asyncio.gather(*(part.rules() for part in self._parts))
        for scope in sorted({field.partition(":")[2] for each in kept for field in each}):
            wanted = whole(
                {kind: kept[0].get(f"{kind}:{scope}", "") for kind in ("pause", *LIMITS, *map(_whole, LIMITS))}
            )
            for number, part in enumerate(self._parts):
                rules = divided(wanted, number, len(self._parts))
                if any(
                    kept[number].get(f"{kind}:{scope}", "") != rule for kind, rule in rules.items() if kind != "max"
                ):
                    await part.set_rules(scope, rules)


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
