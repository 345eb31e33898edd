"""`python -m bench.peers [--quick | --short] [--only bullmq,dramatiq] [--install] [--json FILE] [--write-docs]`."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bench.peers import page, rounds
from bench.peers.catalogue import OURS, PEERS, Peer
from bench.peers.environments import ROOT
from bench.peers.rounds import FULL, QUICK, SHORT, TINY
from bench.peers.run import Run, machine, write_json

SIZES = {"tiny": TINY, "quick": QUICK, "short": SHORT, "full": FULL}
"""The sizes by their option; the last one is the default and has no option."""


def main() -> None:
    arguments = _parser().parse_args()
    # Workers run in sessions of their own, so a signal reaches only this process; SystemExit unwinds and kills them.
    signal.signal(signal.SIGTERM, _leave)
    peers = _chosen(arguments.only)
    if arguments.install:
        rounds.install(peers, ROOT / ".peers", rounds.log_to_stderr)
        return
    size, plan = next((name, plan) for name, plan in SIZES.items() if getattr(arguments, name, True))
    measuring = rounds.measure(peers, plan, ROOT / ".peers", has_aof=arguments.aof == "on", log=rounds.log_to_stderr)
    run = Run(machine(), size, arguments.aof)
    run.results.update(asyncio.run(measuring))
    sys.stdout.write(page.text(run))
    if arguments.json:
        write_json(arguments.json, run)
    if arguments.write_docs:
        page.write(ROOT / "docs" / "performance.md", run)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="TideQ beside other queues.")
    parser.add_argument("--quick", action="store_true", help="about seven minutes: best settings, one worker")
    parser.add_argument(
        "--short", action="store_true", help="about twenty minutes: all parts of a full run, in short turns"
    )
    parser.add_argument("--tiny", action="store_true", help="only to check that every peer runs")
    parser.add_argument("--only", default="", help="names or parts of names, by comma; TideQ is always included")
    parser.add_argument("--install", action="store_true", help="only create the environments")
    parser.add_argument("--aof", choices=("on", "off"), default="on", help="the append-only file of every Valkey")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/performance.md")
    return parser


def _chosen(only: str) -> Sequence[Peer]:
    words = [word for word in only.lower().replace(" ", "").split(",") if word]
    if not words:
        return PEERS
    return [
        peer for peer in PEERS if peer.name == OURS or any(word in peer.name.lower().replace(" ", "") for word in words)
    ]


if __name__ == "__main__":
    main()
