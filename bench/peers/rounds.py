"""Everybody takes turns, round by round, each round beginning with another; who fails is noted and the rest goes on."""

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
"""Turns a peer may fail in; a machine that hung for once is no reason to leave it out."""


class Measured(msgspec.Struct):
    """What one peer showed, a sample a round, by the kind of turn."""

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
"""To see that everything works; its figures mean nothing."""
SHORT = Plan(
    3,
    1,
    {
        BEST: Amount(1.2, 2.0, 400),
        TWO: Amount(1.2, 2.0, 0, worker_count=2, is_whole=False),
        COMMON: Amount(0.8, 1.5, 200),
    },
)
"""Everything a full run has, in turns as short as a quick one's."""
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
    with whole_place(peers_folder, has_aof=has_aof) as place:
        return await take_turns(peers, plan, place, log)


@contextmanager
def whole_place(peers_folder: Path, *, has_aof: bool) -> Generator[TurnContext]:
    """A folder for stores and logs, open to enter because PostgreSQL may be another user, and the run's PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="tideq-peers-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        with postgres_server(Path(name) / "postgres") as postgres:
            yield TurnContext(Path(name), Environments(peers_folder), postgres, has_aof)


async def take_turns(peers: Sequence[Peer], plan: Plan, place: TurnContext, log: Log) -> Results:
    results = {peer.name: Measured() for peer in peers}
    for peer in peers:
        _install(peer, place.environments, results[peer.name], log)
    for number in range(plan.rounds):
        first = number % len(peers)
        for peer in (*peers[first:], *peers[:first]):
            if not results[peer.name].is_out and number < (plan.slow_rounds if peer.is_slow else plan.rounds):
                log(f"round {number + 1} of {plan.rounds}: {peer.name}")
                await _round(peer, number, plan, place, results[peer.name], log)
    return results


async def _round(peer: Peer, number: int, plan: Plan, place: TurnContext, measured: Measured, tell: Log) -> None:
    for kind, amount in plan.kinds.items():
        if kind != BEST and not peer.processes:
            continue
        try:
            sample = await take_turn(peer, kind, place, amount)
        except DriverFailed as failed:
            measured.problem, measured.failures = str(failed), measured.failures + 1
            tell(f"{peer.name} failed: {failed}")
            return
        sample.round_number = number
        measured.settings[kind] = peer.settings(kind)
        measured.samples.setdefault(kind, []).append(sample)


def install(peers: Sequence[Peer], peers_folder: Path, log: Log) -> None:
    """Ahead of a run, so that it begins at once."""
    for peer in peers:
        _install(peer, Environments(peers_folder), Measured(), log)


def _install(peer: Peer, environments: Environments, measured: Measured, tell: Log) -> None:
    try:
        environments.command(peer)
    except CannotInstall as reason:
        tell(f"{peer.name} cannot be installed: {reason}")
        measured.problem, measured.failures = f"cannot be installed: {reason}", MAX_FAILURES


def log_to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
