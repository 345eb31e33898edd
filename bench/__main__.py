"""`python -m bench [--quick] [--only NAME …] [--store valkey|redis] [--json FILE]`."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console

from bench import (
    circuits,
    history,
    http,
    lanes,
    lifecycle,
    memory,
    partitions,
    reference,
    report,
    runtime,
    telemetry,
)
from bench.figures import FULL, QUICK, Findings, Plan
from bench.server import Servers

BENCHES: dict[str, Callable[[Servers, Plan], Awaitable[Findings]]] = {
    "reference": reference.measure,
    "lifecycle": lifecycle.measure,
    "memory": memory.measure,
    "lanes": lanes.measure,
    "partitions": partitions.measure,
    "http": http.measure,
    "history": history.measure,
    "workers": runtime.measure,
    "circuits": circuits.measure,
    "telemetry": telemetry.measure,
}


def main() -> None:
    arguments = _parser().parse_args()
    chosen = arguments.only or list(BENCHES)
    names = ["reference", *(name for name in chosen if name != "reference")]
    findings = asyncio.run(_run(names, arguments.store, QUICK if arguments.quick else FULL))
    report.show(Console(width=None if sys.stdout.isatty() else 140), findings)
    if arguments.json:
        report.write_json(arguments.json, arguments.store, findings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="What the queue core and the service cost.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, about a minute")
    only = "this one, beside the reference; may be repeated"
    parser.add_argument("--only", action="append", choices=tuple(BENCHES), help=only)
    store = "the wheel's Valkey, or redis-server on PATH"
    parser.add_argument("--store", choices=("valkey", "redis"), default="valkey", help=store)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there too")
    return parser


async def _run(names: list[str], store: str, plan: Plan) -> dict[str, Findings]:
    progress = Console(stderr=True, quiet=not sys.stderr.isatty())
    findings: dict[str, Findings] = {}
    with tempfile.TemporaryDirectory(prefix="tideq-bench-") as folder:
        servers = Servers(store, Path(folder))
        for name in names:
            progress.print(f"measuring {name} …")
            findings[name] = await BENCHES[name](servers, plan)
    return findings


if __name__ == "__main__":
    main()
