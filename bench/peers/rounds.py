"""Runs the peers in turns, round by round; each round begins with another peer. A peer that fails twice is left out."""

import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.peers.catalogue import Peer
from bench.peers.environments import CannotInstall, Environments
from bench.peers.processes import DriverFailed
from bench.peers.samples import Amount, Sample
from bench.peers.stores import postgres_server
from bench.peers.turn import TurnContext, take_turn

Log = Callable[[str], None]
BEST, TWO, COMMON = "best", "two", "common"
MAX_FAILURES = 2
"""A peer is left out after this number of failed turns; one failure may be the machine's."""


class Measured(msgspec.Struct):
    """The samples of one peer, one for each round, by the kind of turn."""

    settings: dict[str, dict[str, object]] = msgspec.field(default_factory=dict[str, dict[str, object]])
    samples: dict[str, list[Sample]] = msgspec.field(default_factory=dict[str, list[Sample]])
    problem: str = ""
    failures: int = 0

    @property
    def is_out(self) -> bool:
        return self.failures >= MAX_FAILURES


class Plan(msgspec.Struct, frozen=True):
    rounds: int
    slow_rounds: int
    kinds: dict[str, Amount]


QUICK = Plan(3, 1, {BEST: Amount(1.2, 2.0, 400)})
TINY = Plan(1, 1, {BEST: Amount(0.3, 0.6, 100)})
"""To check that every peer runs; its figures mean nothing."""
SHORT = Plan(
    3,
    1,
    {
        BEST: Amount(1.2, 2.0, 400),
        TWO: Amount(1.2, 2.0, 0, worker_count=2, is_whole=False),
        COMMON: Amount(0.8, 1.5, 200),
    },
)
"""All parts of a full run, in turns as short as a quick run's."""
FULL = Plan(
    3,
    3,
    {
        BEST: Amount(4.0, 8.0, 1_000),
        TWO: Amount(4.0, 6.0, 0, worker_count=2, is_whole=False),
        COMMON: Amount(2.0, 4.0, 1_000),
    },
)

Results = dict[str, Measured]


async def measure(peers: Sequence[Peer], plan: Plan, peers_folder: Path, *, has_aof: bool, log: Log) -> Results:
    with open_context(peers_folder, has_aof=has_aof) as context:
        return await take_turns(peers, plan, context, log)


@contextmanager
def open_context(peers_folder: Path, *, has_aof: bool) -> Generator[TurnContext]:
    """A folder for stores and logs, mode 0755 because PostgreSQL may run as another user, and the run's PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="tideq-peers-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        with postgres_server(Path(name) / "postgres") as postgres:
            yield TurnContext(Path(name), Environments(peers_folder), postgres, has_aof)


async def take_turns(peers: Sequence[Peer], plan: Plan, context: TurnContext, log: Log) -> Results:
    results = {peer.name: Measured() for peer in peers}
    for peer in peers:
        _install(peer, context.environments, results[peer.name], log)
    for number in range(plan.rounds):
        first = number % len(peers)
        for peer in (*peers[first:], *peers[:first]):
            if not results[peer.name].is_out and number < (plan.slow_rounds if peer.is_slow else plan.rounds):
                log(f"round {number + 1} of {plan.rounds}: {peer.name}")
                await _round(peer, number, plan, context, results[peer.name], log)
    return results


async def _round(peer: Peer, number: int, plan: Plan, context: TurnContext, measured: Measured, log: Log) -> None:
    for kind, amount in plan.kinds.items():
        if kind != BEST and not peer.processes:
            continue
        try:
            sample = await take_turn(peer, kind, context, amount)
        except DriverFailed as failed:
            measured.problem, measured.failures = str(failed), measured.failures + 1
            log(f"{peer.name} failed: {failed}")
            return
        sample.round_number = number
        measured.settings[kind] = peer.settings(kind)
        measured.samples.setdefault(kind, []).append(sample)


def install(peers: Sequence[Peer], peers_folder: Path, log: Log) -> None:
    """Creates the environments ahead of a run."""
    for peer in peers:
        _install(peer, Environments(peers_folder), Measured(), log)


def _install(peer: Peer, environments: Environments, measured: Measured, log: Log) -> None:
    try:
        environments.command(peer)
    except CannotInstall as reason:
        log(f"{peer.name} cannot be installed: {reason}")
        measured.problem, measured.failures = f"cannot be installed: {reason}", MAX_FAILURES


def log_to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
