"""The prober: asks every worker that names a health address how it is.

Two failures in a row make a worker unhealthy: it gets no new work and keeps what it holds. One success makes it healthy
again. A prober that is cut off can therefore stop new work, and never releases a task. Workers whose name is not
resolved just now are asked at their last address: an old verdict would stay for ever otherwise.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Sequence

import structlog

from tideq.queue_core.duties import Duties
from tideq.queue_core.engine.fleet import Fleet, Member
from tideq.workers.monitor.addresses import Address, NotAllowed, NotResolved, allowed_address
from tideq.workers.monitor.probe import is_well

ALIVE = ("active", "draining", "unhealthy")
FAILURES = 2
AT_ONCE = 20

log = structlog.get_logger(__name__)


class Prober:
    def __init__(
        self, fleet: Fleet, allowed_cidrs: Sequence[str], on_probe: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_probe` is told how each one came out: `well`, `failed` or `refused`."""
        self._fleet = fleet
        self._on_probe = on_probe
        self._networks = [ipaddress.ip_network(cidr) for cidr in allowed_cidrs]
        self._failures: dict[str, int] = {}
        self._refused: set[str] = set()
        self._addresses: dict[str, Address] = {}
        """By host name, where it was resolved and allowed last."""
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def probe_for_ever(self, interval_seconds: float, duties: Duties) -> None:
        if not self._networks:
            log.info("no worker is probed: TIDEQ_PROBE_ALLOWED_CIDRS allows no address")
            return
        await duties.keep_every("probe", interval_seconds, self.probe_all)

    async def probe_all(self) -> None:
        """Raises what kept one from being judged after all the others are."""
        members = [member async for member in self._fleet.everyone(ALIVE) if _is_probed(member)]
        ended = await asyncio.gather(*(self._probe(member) for member in members), return_exceptions=True)
        known = {member.worker.worker_id for member in members}
        self._failures = {worker_id: count for worker_id, count in self._failures.items() if worker_id in known}
        self._refused &= known
        hosts = {member.worker.host for member in members}
        self._addresses = {host: address for host, address in self._addresses.items() if host in hosts}
        for failure in filter(None, ended):
            raise failure

    async def _probe(self, member: Member) -> None:
        worker, port = member.worker, member.worker.health_port or 0
        async with self._turns:
            try:
                address = await self._address_of(worker.host)
            except NotAllowed as error:
                self._on_probe("refused")
                self._tell_once(worker.worker_id, error)
                return
            await self._judge(member, await is_well(address, port))

    async def _address_of(self, host: str) -> Address:
        try:
            address = await allowed_address(host, self._networks)
        except NotResolved:
            if host not in self._addresses:
                raise
            return self._addresses[host]
        except NotAllowed:
            self._addresses.pop(host, None)
            raise
        self._addresses[host] = address
        return address

    async def _judge(self, member: Member, is_healthy: bool) -> None:
        worker_id = member.worker.worker_id
        self._on_probe("well" if is_healthy else "failed")
        failures = 0 if is_healthy else self._failures.get(worker_id, member.probe_failures) + 1
        self._failures[worker_id] = failures
        if is_healthy and (member.verdict, member.probe_failures) == ("active", 0):
            return
        verdict = "active" if is_healthy else "unhealthy" if failures >= FAILURES else None
        status = await self._fleet.judge(worker_id, verdict, failures)
        if verdict and verdict != member.verdict:
            log.warning("worker judged", worker_id=worker_id, status=status)

    def _tell_once(self, worker_id: str, error: NotAllowed) -> None:
        if worker_id not in self._refused:
            self._refused.add(worker_id)
            log.warning("worker is not probed", worker_id=worker_id, reason=str(error))


def _is_probed(member: Member) -> bool:
    """One that an operator sent home is only waited for."""
    return bool(member.worker.host and member.worker.health_port and member.verdict != "draining")
