"""The `complete` script by hash, against the same code as a Function library.

In the library everything that is a function or a constant is made once, when it loads; a call only sets the other
values anew. That is the best a library can do with code that gathers its writes in tables.
"""

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from bench.figures import Findings, Plan, Table, figure, ratio, take_turns
from bench.lifecycle import RESULT, new_tasks
from bench.server import WORKER, BenchServer, Servers
from tideq.queue_core.engine.attempts import Held
from tideq.queue_core.engine.engine import Engine, assemble_engine
from tideq.queue_core.engine.scripts import assemble
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.task import ClaimedTask

CALLS_BY_ROWS = {0: 400, 1: 400, 100: 30}
QUEUE = "functions"
FUNCTION = "bench_complete"
DIGEST = "0123456789abcdef"
LOCAL = re.compile(r"^local (?!function)([\w, ]+?)(?: = (.*))?$")


class Parts(NamedTuple):
    names: list[str]
    fixed: list[str]
    statements: list[str]


def library_source(script: str) -> str:
    parts = _parts(script)
    register = f"redis.register_function{{function_name='{FUNCTION}', callback=call, flags={{'allow-oom'}}}}"
    return "\n".join(
        [
            f"#!lua name={FUNCTION}",
            *(f"local {names}" for names in ("KEYS, ARGV", *parts.names)),
            *parts.fixed,
            "local function call(keys, argv)\nKEYS, ARGV = keys, argv",
            *parts.statements,
            f"end\n{register}",
        ]
    )


def _parts(script: str) -> Parts:
    parts, lines = Parts([], [], []), iter(script.splitlines())
    for line in lines:
        match = LOCAL.match(line)
        if line.startswith("local function") or line.endswith("= {"):
            parts.fixed.append(_block(line, lines))
        elif match and match[1].isupper():
            parts.fixed.append(line)
        elif match:
            parts.names.append(match[1])
            parts.statements.append(f"{match[1]} = {match[2] or 'nil'}")
        else:
            parts.statements.append(line)
    return parts


def _block(first: str, lines: Iterator[str]) -> str:
    """A function or table that begins in the first column, to its end there."""
    taken = [first]
    while not (first.endswith(" end") and len(taken) == 1) and taken[-1] not in ("end", "}"):
        taken.append(next(lines))
    return "\n".join(taken)


async def executing(engine: Engine, count: int) -> list[ClaimedTask]:
    tasks: list[ClaimedTask] = []
    for _ in range(0, count, 100):
        await engine.queue.submit_many(new_tasks(100))
        claimed = (await engine.queue.claim(WORKER, 100)).tasks
        await engine.attempts.start(WORKER, [Held(task.task_id, task.lease) for task in claimed])
        tasks.extend(claimed)
    return tasks


class Listener:
    """A client that remembers the words of the last script called."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.key_count = 0
        self.words: tuple[Any, ...] = ()

    async def script_load(self, source: str) -> str:
        return await self._client.script_load(source)

    async def evalsha(self, sha: str, key_count: int, *words: Any) -> Any:
        self.key_count, self.words = key_count, words
        return await self._client.evalsha(sha, key_count, *words)


async def call_words(client: Any) -> tuple[int, tuple[Any, ...]]:
    """How many keys, and the keys and arguments the engine sends before the rows."""
    listener = Listener(client)
    engine = assemble_engine(listener, QueueSettings(queue_name=QUEUE))
    await engine.queue.open()
    await engine.scripts.call("complete", worker_id=WORKER)
    return listener.key_count, listener.words


async def complete_cost(server: BenchServer, engine: Engine, command: str, name: str, rows: int) -> float:
    """µs a call that completes this many tasks."""
    calls = CALLS_BY_ROWS[rows]
    tasks = iter(await executing(engine, calls * rows))
    key_count, words = await call_words(server.client)

    async def work() -> None:
        for _ in range(calls):
            batch = [value for task in islice(tasks, rows) for value in (task.task_id, task.lease, DIGEST, RESULT)]
            reply = await server.client.execute_command(command, name, key_count, *words, *batch)
            if reply[0] != b"OK" or (rows and reply[2] != b"OK completed"):
                raise RuntimeError(f"complete answered {reply[:3]}")

    return (await server.cost(calls, work)).cpu_us


async def measure(servers: Servers, plan: Plan) -> Findings:
    with servers.start() as server:
        engine, script = await server.engine(QUEUE), assemble("complete").text
        sha = await server.client.script_load(f"#!lua flags=allow-oom\n{script}")
        await server.client.execute_command("FUNCTION", "LOAD", library_source(script))
        variants = {
            f"{command} {rows}": partial(complete_cost, server, engine, command, name, rows)
            for command, name in (("EVALSHA", sha), ("FCALL", FUNCTION))
            for rows in CALLS_BY_ROWS
        }
        samples = await take_turns(plan.rounds, variants)
    rows = tuple(
        (str(count), figure(script), figure(function), ratio(function, script))
        for count in CALLS_BY_ROWS
        for script, function in [(samples[f"EVALSHA {count}"], samples[f"FCALL {count}"])]
    )
    return Findings((Table("complete, µs a call", ("tasks", "EVALSHA", "Function", "ratio"), rows),))
