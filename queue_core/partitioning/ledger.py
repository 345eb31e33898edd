"""The ledger: limits of a queue with several partitions, kept in one place for all of them.

The ledger lies in partition 0 and is called only where a limit is in force. A claim peeks at the partitions, requests
permits for the tasks it found, takes no more than it was granted, and reports what it took. While the ledger is away no
limited task is handed out; any other partition that is away counts with the ledger's last reading of it, whichever
process read it. The promises and costs are in docs/scale.md.
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
"""How long the permits of a reading are valid; the ledger keeps them three times as long (`include/ledger.lua`)."""


class Permit(NamedTuple):
    """The ledger's reply about one limit."""

    granted: int
    left: int | None
    """The number left besides; `None` for any number."""
    refills_in_ms: int | None
    """Until a rate lets out the next task, where it lets out none now."""
    is_uncertain: bool
    """Whether more may be available than was granted, because the reading was old: read again."""
    running: int
    """Tasks that are assigned or executing in all partitions."""


NOTHING = Permit(0, 0, None, is_uncertain=False, running=0)


class Grant(NamedTuple):
    grant_id: str
    permits: dict[str, Permit]
    """By scope, of every limit in force."""

    @property
    def left(self) -> str:
        """As `peek.lua` takes it; uncertain limits are left out, and the next peek reads as if they were free."""
        return counts_text({each: permit.left for each, permit in self.permits.items() if not permit.is_uncertain})

    @property
    def refills_in_ms(self) -> int | None:
        waits = (each.refills_in_ms for each in self.permits.values())
        return min((each for each in waits if each is not None), default=None)


class Ledger:
    """`scripts` are those of partition 0."""

    def __init__(self, scripts: Scripts, part_count: int) -> None:
        self._scripts = scripts
        self._part_count = part_count

    async def grant(self, uses: Uses, demands: Mapping[str, int], read_at_ms: int, *, is_whole: bool = False) -> Grant:
        """Permits for as much of each demand as its limit allows, or with `is_whole` for all of it or nothing.

        `read_at_ms` is the ledger's instant at which `uses` were read. While the ledger is away nothing is granted.
        """
        grant_id = secrets.token_hex(8)
        try:
            permits = await self._call(uses, demands, read_at_ms, grant_id, is_whole=is_whole)
        except Unavailable:
            permits = dict.fromkeys(_by_scope(uses), NOTHING)
        return Grant(grant_id if any(each.granted for each in permits.values()) else "", permits)

    async def apply_limits(self, scans: Mapping[int, ReadyScan]) -> list[ReadyScan]:
        """The same scans without tasks that limits hold back: no poll wakes for these before a limit lets out more."""
        uses = {partition: scan.uses for partition, scan in scans.items()}
        if not any(uses.values()):
            return list(scans.values())
        try:
            permits = await self.read(uses, scans[0].now_ms if 0 in scans else 0)
        except Unavailable:
            permits = dict.fromkeys(_by_scope(uses), NOTHING)
        left = {scope: permit.left for scope, permit in permits.items() if permit.left is not None}
        return [_limited(scan, permits, left) for scan in scans.values()]

    async def read(self, uses: Uses, read_at_ms: int) -> dict[str, Permit]:
        """What each limit has left, without a grant. The ledger stores the uses. Raises `Unavailable`."""
        return await self._call(uses, {}, read_at_ms, "", is_whole=False)

    async def settle(
        self, grant: Grant, uses: Uses, used: Mapping[str, int], taken: Mapping[str, Mapping[int, int]]
    ) -> None:
        """Ends a grant: `used` permits of each limit were used, the others return.

        `taken` has by limit how many tasks each partition that was claimed from has ever taken under it.
        """
        if not grant.grant_id:
            return
        rows: list[str | int] = []
        for scope, each in _by_scope(uses).items():
            unused = grant.permits[scope].granted - used.get(scope, 0)
            takes = " ".join(f"{partition}:{count}" for partition, count in taken.get(scope, {}).items())
            rows += (scope, next(iter(each.values())).rate, max(unused, 0), takes)
        accepted(await self._scripts.call("settle_grant", grant_id=grant.grant_id, rows=rows))

    async def _call(
        self, uses: Uses, demands: Mapping[str, int], read_at_ms: int, grant_id: str, *, is_whole: bool
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
            read_at_ms=read_at_ms,
            demands=counts_text(demands),
            is_whole=int(is_whole),
            part_count=0 if is_whole else self._part_count,
            rows=rows,
        )
        now, *replies = accepted(reply)
        permits: dict[str, Permit] = {}
        for scope, (granted, left, refills_at, is_uncertain, running) in zip(by_scope, replies, strict=True):
            refills_ms = instant(refills_at)
            permits[scope] = Permit(
                granted=number(granted),
                left=instant(left),
                refills_in_ms=None if refills_ms is None else refills_ms - number(now),
                is_uncertain=number(is_uncertain) == 1,
                running=number(running),
            )
        return permits


def _limited(scan: ReadyScan, permits: Mapping[str, Permit], left: dict[str, int]) -> ReadyScan:
    """Subtracts the scan's tasks from `left`."""
    ready, instants = list[tuple[str, int]](), [scan.next_at_ms]
    for signature, count in scan.ready:
        scopes = [each for each in (WHOLE_QUEUE, task_type_of(signature)) if each in left]
        allowed = min([count, *(left[each] for each in scopes)])
        left.update({each: left[each] - allowed for each in scopes})
        if allowed:
            ready.append((signature, allowed))
        waits = (permits[each].refills_in_ms for each in scopes)
        instants.extend(scan.now_ms + each for each in waits if each is not None)
    return scan._replace(ready=ready, next_at_ms=min(filter(None, instants), default=None))


def counts_text(counts: Mapping[str, int | None]) -> str:
    return " ".join(f"{scope}={count}" for scope, count in counts.items() if count is not None)


def _by_scope(uses: Uses) -> dict[str, dict[int, Use]]:
    """By limit and partition. The lowest partition's limit counts: values differ only while a limit is being set."""
    found: dict[str, dict[int, Use]] = {}
    for partition in sorted(uses):
        for use in uses[partition]:
            found.setdefault(use.scope, {})[partition] = use
    return found
