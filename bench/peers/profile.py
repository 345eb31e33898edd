"""Profiles TideQ's Python CPU by library: `python -m bench.peers.profile [--seconds N] [--write-docs]`.

py-spy, in an environment of its own, samples the API process and a worker a few hundred times a second, and counts the
running functions. Time in a library's C code counts for the Python function that called it.
"""

import argparse
import asyncio
import re
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.peers import processes
from bench.peers.catalogue import LEAN, OURS, PEERS, Peer
from bench.peers.environments import ROOT
from bench.peers.page import NOTHING, head, replaced, row
from bench.peers.rounds import open_context
from bench.peers.turn import TurnContext, turn_services

BEGIN, END = "<!-- profile: written by `make profile` -->", "<!-- end of profile -->"
SPY = Peer("py-spy", "py-spy.py", "python", "redis", {}, ("py-spy==0.4.3",))
SAMPLES_A_SECOND = 250
FRAME = re.compile(r"^(?P<function>.*) \((?P<path>.*?)(:\d+)?\)$")
FOLDERS = ("queue_core", "persistence", "api", "workers", "tideq")
LOOP = "Python's library and the event loop"
MOST = 12
AT_ONCE, FILL = 32, 1_000

Profile = Counter[tuple[str, str]]
"""Samples by library and function."""


def read(stacks: str) -> Profile:
    """Counts the last frame of each stack in py-spy's `raw` format."""
    found: Profile = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        if frame := FRAME.match(stack.rpartition(";")[2]):
            library = library_of(frame["path"])
            found[library, frame["function"]] += int(count)
    return found


def library_of(path: str) -> str:
    """The package, such as `redis` or `litestar`; a folder of TideQ; or the standard library."""
    if found := re.search(r"site-packages/([^/]+)", path):
        return found[1].removesuffix(".py")
    inside = Path(path).relative_to(ROOT).parts if path.startswith(str(ROOT)) else ()
    own = [part for part in inside if part in FOLDERS]
    return f"TideQ: {own[-1]}" if own else LOOP


async def profiles(context: TurnContext, seconds: int) -> dict[str, Profile]:
    """Profiles single submissions, bulk submissions, and the API and a worker while the worker runs tasks."""
    found: dict[str, Profile] = {}
    async with turn_services(_peer(OURS), context) as services:
        api = services.service.api
        assert api is not None
        settings = {**_peer(OURS).best, **services.urls}
        async with _driver(context, settings) as driver:
            busy = driver.order("single", seconds=seconds + 2, at_once=AT_ONCE)
            found["API, single submissions"], _ = await asyncio.gather(_spied(context, api.pid, seconds), busy)
            busy = driver.order("bulk", seconds=seconds + 2, batch=FILL)
            found["API, bulk submissions"], _ = await asyncio.gather(_spied(context, api.pid, seconds), busy)
            command, environ = context.environments.command(_peer(OURS)), context.environments.environ()
            with processes.worker(command, settings, environ, context.folder / "worker.log") as worker:
                await asyncio.sleep(2)
                both = await asyncio.gather(_spied(context, api.pid, seconds), _spied(context, worker.pid, seconds))
                found["API, claims and results"], found["worker"] = both
    return found


def text(found: Mapping[str, Profile]) -> str:
    """Shares in per cent by library, the largest first; then the functions with the most samples."""
    shares = {name: _shares(profile) for name, profile in found.items()}
    libraries = {library for each in shares.values() for library in each}
    ordered = sorted(libraries, key=lambda library: -max(each.get(library, 0.0) for each in shares.values()))
    lines = head("% of its time", list(found))
    for library in ordered[:MOST]:
        cells = [f"{each[library]:.0f}" if library in each else NOTHING for each in shares.values()]
        lines.append(row(library, cells))
    return "\n".join([*lines, "", *_functions(found)]) + "\n"


def _shares(profile: Profile) -> dict[str, float]:
    total, by_library = sum(profile.values()) or 1, Counter[str]()
    for (library, _), count in profile.items():
        by_library[library] += count
    return {library: 100 * count / total for library, count in by_library.items()}


def _functions(found: Mapping[str, Profile]) -> list[str]:
    lines: list[str] = []
    for name, profile in found.items():
        total = sum(profile.values()) or 1
        most = [
            f"`{function}` ({library}) {100 * n / total:.0f} %" for (library, function), n in profile.most_common(6)
        ]
        lines.append(f"- {name}: {', '.join(most)}.")
    return lines


@asynccontextmanager
async def _driver(context: TurnContext, settings: Mapping[str, Any]) -> AsyncGenerator[processes.DriverClient]:
    command, environ = context.environments.command(_peer(LEAN)), context.environments.environ()
    async with processes.client(command, settings, environ, context.folder / "client.log") as (driver, _):
        yield driver


async def _spied(context: TurnContext, pid: int, seconds: int) -> Profile:
    program, raw = context.environments.program(SPY, "py-spy"), context.folder / f"{pid}.raw"
    options = ("--format", "raw", "--full-filenames", "--rate", str(SAMPLES_A_SECOND), "--nonblocking")
    spy = await asyncio.create_subprocess_exec(
        program,
        *("record", "--pid", str(pid), "--duration", str(seconds), "--output", str(raw), *options),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    if await spy.wait():
        raise processes.DriverFailed("py-spy may not read other processes on this machine")
    return read(await asyncio.to_thread(raw.read_text))


def _peer(name: str) -> Peer:
    return next(peer for peer in PEERS if peer.name == name)


async def _run(seconds: int) -> dict[str, Profile]:
    with open_context(ROOT / ".peers", has_aof=True) as context:
        return await profiles(context, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.profile", description="Where TideQ's time goes.")
    parser.add_argument("--seconds", type=int, default=5, help="seconds to sample each load")
    parser.add_argument("--write-docs", action="store_true", help="write the table into docs/performance.md")
    arguments = parser.parse_args()
    found = text(asyncio.run(_run(arguments.seconds)))
    sys.stdout.write(found)
    if arguments.write_docs:
        path = ROOT / "docs" / "performance.md"
        path.write_text(replaced(path.read_text(), BEGIN, END, found))


if __name__ == "__main__":
    main()
