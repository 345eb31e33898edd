"""The prober: probes the health address of every worker that has one.

Two failures in a row make a worker unhealthy: it gets no new tasks and keeps those it holds. One success makes it
healthy again. So a prober cut off from the network can stop new claims, but never releases a task. A worker whose name
cannot be resolved at present is probed at its last address: otherwise its last result would stay for ever.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Sequence

import structlog

from tideq.queue_core.duties import Duties
from tideq.queue_core.fleet import Fleet
from tideq.queue_core.worker_calls import Member
from tideq.workers.monitor.addresses import Address, NotAllowed, NotResolved, allowed_address
from tideq.workers.monitor.probe import probe

ALIVE = ("active", "draining", "unhealthy")
FAILURES = 2
AT_ONCE = 20

log = structlog.get_logger(__name__)


class Prober:
    def __init__(
        self, fleet: Fleet, allowed_cidrs: Sequence[str], on_probe: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_probe` is called with each outcome: `well`, `failed` or `refused`."""
        self._fleet = fleet
        self._on_probe = on_probe
        self._networks = [ipaddress.ip_network(cidr) for cidr in allowed_cidrs]
        self._failures: dict[str, int] = {}
        self._refused: set[str] = set()
        self._addresses: dict[str, Address] = {}
        """By host name: the address that was resolved and allowed last."""
        self._concurrency = asyncio.Semaphore(AT_ONCE)

    async def probe_for_ever(self, interval_seconds: float, duties: Duties) -> None:
        if not self._networks:
            log.info("probing disabled: TIDEQ_PROBE_ALLOWED_CIDRS allows no address")
            return
        await duties.add_periodic("probe", interval_seconds, self.probe_all)

    async def probe_all(self) -> None:
        """Probes all workers, then raises the first error, if any."""
        members = [member async for member in self._fleet.all(ALIVE) if _is_probed(member)]
        outcomes = await asyncio.gather(*(self._probe(member) for member in members), return_exceptions=True)
        current = {member.worker.worker_id for member in members}
        self._failures = {worker_id: count for worker_id, count in self._failures.items() if worker_id in current}
        self._refused &= current
        hosts = {member.worker.host for member in members}
        self._addresses = {host: address for host, address in self._addresses.items() if host in hosts}
        for failure in filter(None, outcomes):
            raise failure

    async def _probe(self, member: Member) -> None:
        worker, port = member.worker, member.worker.health_port or 0
        async with self._concurrency:
            try:
                address = await self._address_of(worker.host)
            except NotAllowed as error:
                self._on_probe("refused")
                self._log_refusal_once(worker.worker_id, error)
                return
            await self._apply_result(member, await probe(address, port))

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

    async def _apply_result(self, member: Member, is_healthy: bool) -> None:
        worker_id = member.worker.worker_id
        self._on_probe("well" if is_healthy else "failed")
        failures = 0 if is_healthy else self._failures.get(worker_id, member.probe_failures) + 1
        self._failures[worker_id] = failures
        if is_healthy and (member.service_state, member.probe_failures) == ("active", 0):
            return
        state = "active" if is_healthy else "unhealthy" if failures >= FAILURES else None
        status = await self._fleet.set_state(worker_id, state, failures)
        if state and state != member.service_state:
            log.warning("worker health changed", worker_id=worker_id, status=status)

    def _log_refusal_once(self, worker_id: str, error: NotAllowed) -> None:
        if worker_id not in self._refused:
            self._refused.add(worker_id)
            log.warning("worker probe refused", worker_id=worker_id, reason=str(error))


def _is_probed(member: Member) -> bool:
    """A worker that an operator drains is not probed."""
    return bool(member.worker.host and member.worker.health_port and member.service_state != "draining")
