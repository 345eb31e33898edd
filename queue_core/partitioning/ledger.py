"""The ledger: limits of a queue with several partitions, kept in one place for all of them.

It lies in partition 0 and is asked only where a limit is in force. A claim looks at the partitions, asks for permits
for what it found, takes no more than it was granted, and says what it took. While the ledger is away nothing that is
limited is handed out; any other partition that is away counts with what the ledger last knew of it, whichever process
looked. What it promises and what it costs is in docs/scale.md.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tideq.queue_core.controls import WHOLE_QUEUE
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.lanes import task_type_of
from tideq.queue_core.polls.poll import Use
from tideq.queue_core.polls.ready_lanes import ReadyScan
from tideq.queue_core.scripts.replies import accepted, instant, number
from tideq.queue_core.scripts.runner import Scripts

Uses = Mapping[int, Sequence[Use]]
"""By partition."""
PERMIT_MS = 5_000
"""How long after a look its permits are good; the ledger keeps them three times as long (`include/ledger.lua`)."""


class Permit(NamedTuple):
    """What the ledger said about one limit."""

    granted: int
    left: int | None
    """Besides; `None` is any number."""
    refills_in_ms: int | None
    """Until a rate lets out the next, where it lets out none now."""
    is_doubtful: bool
    """Whether less may have been granted than there is, because the look was old: look again."""
    running: int
    """What is assigned or executing in all partitions."""


NOTHING = Permit(0, 0, None, is_doubtful=False, running=0)


class Grant(NamedTuple):
    grant_id: str
    permits: dict[str, Permit]
    """By scope, of every limit in force."""

    @property
    def left(self) -> str:
        """As `peek.lua` takes it; what is in doubt is looked at again as if it were free."""
        return written({each: permit.left for each, permit in self.permits.items() if not permit.is_doubtful})

    @property
    def refills_in_ms(self) -> int | None:
        waits = (each.refills_in_ms for each in self.permits.values())
        return min((each for each in waits if each is not None), default=None)


class Ledger:
    """`scripts` are those of partition 0."""

    def __init__(self, scripts: Scripts, part_count: int) -> None:
        self._scripts = scripts
        self._part_count = part_count

    async def grant(self, uses: Uses, demands: Mapping[str, int], looked_ms: int, *, is_whole: bool = False) -> Grant:
        """Permits for as much of the demands as limits allow, or of each for all or nothing.

        `looked_ms` is the ledger's instant of the look that `uses` are from.
        """
        grant_id = secrets.token_hex(8)
        try:
            permits = await self._ask(uses, demands, looked_ms, grant_id, is_whole=is_whole)
        except Unavailable:
            permits = dict.fromkeys(_by_scope(uses), NOTHING)
        return Grant(grant_id if any(each.granted for each in permits.values()) else "", permits)

    async def within(self, surveys: Mapping[int, ReadyScan]) -> list[ReadyScan]:
        """The same surveys without what limits hold back: nobody is woken for that before a limit lets out more."""
        uses = {partition: survey.uses for partition, survey in surveys.items()}
        if not any(uses.values()):
            return list(surveys.values())
        try:
            permits = await self.look(uses, surveys[0].now_ms if 0 in surveys else 0)
        except Unavailable:
            permits = dict.fromkeys(_by_scope(uses), NOTHING)
        left = {scope: permit.left for scope, permit in permits.items() if permit.left is not None}
        return [_within(survey, permits, left) for survey in surveys.values()]

    async def look(self, uses: Uses, looked_ms: int) -> dict[str, Permit]:
        """The same without asking for any. The ledger keeps what this look saw."""
        return await self._ask(uses, {}, looked_ms, "", is_whole=False)

    async def redeem(
        self, grant: Grant, uses: Uses, used: Mapping[str, int], taken: Mapping[str, Mapping[int, int]]
    ) -> None:
        """`taken` is what each partition took from ever let out, by limit; of a limit's permits `used` were used."""
        if not grant.grant_id:
            return
        rows: list[str | int] = []
        for scope, each in _by_scope(uses).items():
            unused = grant.permits[scope].granted - used.get(scope, 0)
            takes = " ".join(f"{partition}:{count}" for partition, count in taken.get(scope, {}).items())
            rows += (scope, next(iter(each.values())).rate, max(unused, 0), takes)
        accepted(await self._scripts.call("redeem", grant_id=grant.grant_id, rows=rows))

    async def _ask(
        self, uses: Uses, demands: Mapping[str, int], looked_ms: int, grant_id: str, *, is_whole: bool
    ) -> dict[str, Permit]:
        by_scope = _by_scope(uses)
        rows: list[str] = []
        for scope, each in by_scope.items():
            first = next(iter(each.values()))
            counts = " ".join(f"{at}:{use.running}:{use.taken}:{use.refunded}" for at, use in each.items())
            rows += (scope, first.rate, first.most, counts)
        reply = await self._scripts.call(
            "grant",
            grant_id=grant_id,
            looked_ms=looked_ms,
            demands=written(demands),
            is_whole=int(is_whole),
            part_count=0 if is_whole else self._part_count,
            rows=rows,
        )
        now, *told = accepted(reply)
        permits: dict[str, Permit] = {}
        for scope, (granted, left, refills_at, is_doubtful, running) in zip(by_scope, told, strict=True):
            refills_ms = instant(refills_at)
            permits[scope] = Permit(
                granted=number(granted),
                left=instant(left),
                refills_in_ms=None if refills_ms is None else refills_ms - number(now),
                is_doubtful=number(is_doubtful) == 1,
                running=number(running),
            )
        return permits


def _within(survey: ReadyScan, permits: Mapping[str, Permit], left: dict[str, int]) -> ReadyScan:
    """Uses up what is left."""
    ready, instants = list[tuple[str, int]](), [survey.next_at_ms]
    for signature, count in survey.ready:
        scopes = [each for each in (WHOLE_QUEUE, task_type_of(signature)) if each in left]
        allowed = min([count, *(left[each] for each in scopes)])
        left.update({each: left[each] - allowed for each in scopes})
        if allowed:
            ready.append((signature, allowed))
        waits = (permits[each].refills_in_ms for each in scopes)
        instants.extend(survey.now_ms + each for each in waits if each is not None)
    return survey._replace(ready=ready, next_at_ms=min(filter(None, instants), default=None))


def written(counts: Mapping[str, int | None]) -> str:
    return " ".join(f"{scope}={count}" for scope, count in counts.items() if count is not None)


def _by_scope(uses: Uses) -> dict[str, dict[int, Use]]:
    """What the first partition of all says a limit is, it is: they differ only while one is being set."""
    found: dict[str, dict[int, Use]] = {}
    for partition in sorted(uses):
        for use in uses[partition]:
            found.setdefault(use.scope, {})[partition] = use
    return found
