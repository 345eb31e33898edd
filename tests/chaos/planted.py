"""Mistakes that the harness must find: each is put into a copy of the tree, whose processes are then run under fire.

`python -m tests.chaos.planted [word…]` runs those whose name has the words, or all, and prints what caught each. Under
the same faults the tree as it is must be good: a harness that always cries finds everything.
"""

import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import NamedTuple

from tests.chaos.faults import Profile
from tests.chaos.levels import Level
from tests.chaos.run import Report, run

TREE = Path(__file__).parents[2]
PARTS = ("api", "persistence", "queue_core", "tideq", "workers")
LUA, INCLUDE = "queue_core/scripts", "queue_core/scripts/include"
SEEDS = (1, 2, 3)
WORKERS_DIE: Profile = {"kill:worker": 1}
WIPES: Profile = {"valkey_wiped": 1}
FAIL_OVERS: Profile = {"failed_over": 1}
HISTORY_AWAY: Profile = {"lose_replies:replicate-1>postgres": 1}
FORBIDDEN: Profile = {"store_forbidden": 1}
READ_ONLY: Profile = {"history_read_only": 1}
HISTORY_FORBIDDEN: Profile = {"history_forbidden": 1}
UNREADABLE: Profile = {"unreadable": 1}
GLITCHES: Profile = {"clock_glitch": 1}
CALM: Profile = {"reset": 1}
ORDINARY = Level(
    "planted",
    seconds=14,
    fault_seconds=2.0,
    batch_size=20,
    pause_seconds=0.08,
    hands=4,
    hand_share=0.4,
    slow_share=0.5,
    drain_seconds=60,  # a task that one scripted worker after the other is late with takes half a minute
    staff={"api": 1, "monitor": 1, "replicate": 1, "worker": 2},
)


class Mistake(NamedTuple):
    path: str
    right: str
    wrong: str
    profile: Profile = CALM
    poison_share: float = 0.0


MISTAKES = {
    "any lease is good": Mistake(
        f"{INCLUDE}/check_lease.lua",
        "if task.lease ~= lease or task.worker ~= worker_id then return 'STALE_LEASE ' .. task.state end",
        "",
    ),
    "a second result is accepted": Mistake(
        f"{LUA}/complete.lua", "lease, 'executing')", "lease, 'executing', 'completed')"
    ),
    "a result comes after a cancel": Mistake(
        f"{LUA}/complete.lua", "lease, 'executing')", "lease, 'executing', 'cancelled')"
    ),
    "a lapsed task loses its rank": Mistake(
        f"{INCLUDE}/recover.lua", "task.deliveries, task.attempt =", "task.rank = now task.deliveries, task.attempt ="
    ),
    "a timeout costs no retry": Mistake(f"{INCLUDE}/spend_retry.lua", "task.retries = task.retries + 1", ""),
    "a lost worker costs no loss": Mistake(
        f"{INCLUDE}/recover.lua", "task.losses = task.losses + 1", "", WORKERS_DIE, 0.003
    ),
    "poison is tried without end": Mistake(
        f"{INCLUDE}/recover.lua", "if task.losses < max_losses then", "if true then", CALM, 0.003
    ),
    "a poll is no sign of life": Mistake(
        f"{LUA}/claim.lua", "redis.call('ZADD', workers_key, now + heartbeat_timeout_ms, worker_id)\n", ""
    ),
    "dead workers are never given up": Mistake(
        f"{INCLUDE}/recover.lua", "if not silent[1] then return moved, 0 end", "do return moved, 0 end", WORKERS_DIE
    ),
    "a cancelled task stays in the set": Mistake(f"{INCLUDE}/finish.lua", "  remove_from_queue(task_id)\n", ""),
    "a delay is ignored": Mistake(
        f"{LUA}/submit.lua", "if visible_text == '' then place_ready", "if true then place_ready"
    ),
    "a retry does not wait": Mistake(f"{INCLUDE}/spend_retry.lua", "now + retry_delay(task, code, jitter)", "now + 1"),
    "a key is not kept": Mistake(f"{LUA}/submit.lua", "if name ~= '' then store_key", "if false then store_key"),
    "a script is sent twice": Mistake(
        "queue_core/scripts/runner.py",
        "            raise translated(error) from error\n",
        "            sha = await self._hash(source)\n"
        '            return await self._client.execute_command("EVALSHA", sha, key_count, *words)\n',
        {"lose_replies:api-1>valkey": 1},
    ),
    "a finished task is forgotten before history has it": Mistake(
        f"{INCLUDE}/record_buffer.lua", "if unrecorded_ttl_ms > 0 then", "if true then", {"postgres_down": 1}
    ),
    "the checkpoint moves before the rows": Mistake(
        "persistence/replication/writer.py",
        "await self._checkpoints.move(self._connection, before, after)\n",
        "await self._checkpoints.move(self._connection, before, after)\n"
        "        async with self._connection.transaction():\n",
        HISTORY_AWAY,
    ),
    "dead letters are not listed": Mistake(
        "persistence/replication/writer.py",
        '"dead_letter_tasks")\n        if rows.deaths:',
        '"dead_letter_tasks")\n        if False:',
        CALM,
        0.003,
    ),
    "a rebuild leaves out what is held": Mistake(
        "persistence/queries/live_tasks.sql",
        "WHERE state = ANY (%s)",
        "WHERE state = ANY (%s) AND state = 'queued'",
        WIPES,
    ),
    "a rebuild leaves out the keys": Mistake(
        "persistence/queries/kept_keys.sql", "WHERE idempotency IS NOT NULL", "WHERE false", WIPES
    ),
    "an empty store is taken for a new one": Mistake(
        "persistence/recovery/store_guard.py",
        "return StoreCheck.STORE_EMPTY\n    epoch",
        "return StoreCheck.FRESH_INSTALL\n    epoch",
        WIPES,
    ),
    "a lost epoch counts as history": Mistake(
        "persistence/read/lag.py",
        "return checkpoint.epoch == epoch",
        "return True",
        {"freeze:replicate": 2, "valkey_wiped": 1},
    ),
    "a fail-over's lost submissions are not put back": Mistake(
        "persistence/recovery/reconcile.py",
        "yield [each for each in missing if each.task_id in own]",
        "yield []",
        FAIL_OVERS,
    ),
    "a worker is given no time after a fail-over": Mistake(
        "persistence/recovery/reconcile.py", "gives_workers_time=True", "gives_workers_time=False", FAIL_OVERS
    ),
    "a refusal does not say when to come back": Mistake(
        "api/edge/problems.py",
        "if status in (429, 503) else {}",
        "if status == 429 else {}",
        {"valkey_frozen": 1, "valkey_restart": 1},
    ),
    "a duty that failed is not begun anew": Mistake(
        "queue_core/duties.py",
        "                duty.failed(await _failure_of(work, duty))\n",
        "                duty.failed(await _failure_of(work, duty))\n                await asyncio.Event().wait()\n",
        FORBIDDEN,
    ),
    "a duty that history refused is not begun anew": Mistake(
        "queue_core/duties.py",
        "                duty.failed(await _failure_of(work, duty))\n",
        "                duty.failed(await _failure_of(work, duty))\n                await asyncio.Event().wait()\n",
        READ_ONLY,
    ),
    "what history refuses is an error of ours": Mistake(
        "api/edge/problems.py", "errors.HistoryRefused: (503,", "errors.HistoryRefused: (500,", HISTORY_FORBIDDEN
    ),
    "what the store refuses is an error of ours": Mistake(
        "api/edge/problems.py", "errors.StoreRefused: (503,", "errors.StoreRefused: (500,", FORBIDDEN
    ),
    "one record that cannot be read fails every claim": Mistake(
        f"{INCLUDE}/load_task.lua",
        "local is_read, task = pcall(unpack_record, packed)",
        "local is_read, task = true, unpack_record(packed)",
        UNREADABLE,
    ),
    "what was set aside is never put back": Mistake(
        f"{LUA}/sweep.lua", "if is_live then place_live(task_id, task, 0) end", "", UNREADABLE
    ),
    "a clock that is put right moves time by a minute": Mistake(
        f"{INCLUDE}/clock.lua",
        "elseif passed <= MAX_SILENCE_MS or reading < last_now then",
        "else\n    passed = math.min(passed, 60000) MAX_SILENCE_MS = 60000",
        {"clock_set_back": 1},
    ),
    "a clock that is wrong for a second is believed": Mistake(
        f"{INCLUDE}/clock.lua", "if reading - last_now > MAX_JUMP_MS and not meta[3] then", "if false then", GLITCHES
    ),
    "a worker begins what it may not": Mistake(
        "workers/runtime/consumer.py",
        'if not outcome.ok:\n                log.info("task start refused',
        'if False:\n                log.info("task start refused',
        {"freeze:worker": 2, "half_open:worker": 2, "half_open:api": 1},
    ),
}


def plant(mistake: Mistake, folder: Path) -> Path:
    """A copy of everything that processes import, with the mistake in it."""
    for part in PARTS:
        shutil.copytree(TREE / part, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / mistake.path
    text = path.read_text()
    if mistake.right not in text:
        raise LookupError(f"{mistake.path} no longer says {mistake.right!r}: plant this mistake anew")
    path.write_text(text.replace(mistake.right, mistake.wrong))
    return folder


def level_for(mistake: Mistake) -> Level:
    return dataclasses.replace(ORDINARY, profile=mistake.profile, poison_share=mistake.poison_share)


def false_alarms(mistakes: Iterable[Mistake]) -> int:
    """Of the tree as it is, once for each kind of trouble that the mistakes are looked for in."""
    levels, alarms = list[Level](), 0
    for level in map(level_for, mistakes):
        if level in levels:
            continue
        levels.append(level)
        with whole_folder() as folder:
            report = run(level, SEEDS[0], folder)
        alarms += not report.is_good
        tell(f"no mistake, {', '.join(level.profile)}: {'good' if report.is_good else 'FALSE ALARM'}", report)
    return alarms


def hunt(mistake: Mistake, folder: Path) -> tuple[Report, int]:
    """Until a run finds it; the report of the last run, and how many there were."""
    code, level = plant(mistake, folder / "code"), level_for(mistake)
    report = run(level, SEEDS[0], folder / f"seed-{SEEDS[0]}", code)
    for number, seed in enumerate(SEEDS[1:], 2):
        if not report.is_good:
            return report, number - 1
        report = run(level, seed, folder / f"seed-{seed}", code)
    return report, len(SEEDS)


def main(words: list[str]) -> int:
    missed = 0
    chosen = {name: each for name, each in MISTAKES.items() if not words or any(word in name for word in words)}
    for name, mistake in chosen.items():
        with whole_folder() as folder:
            report, runs = hunt(mistake, folder)
        missed += report.is_good
        tell(f"{name}: {'MISSED' if report.is_good else f'caught in run {runs}'}", report)
    alarms = false_alarms(chosen.values())
    sys.stdout.write(f"{len(chosen) - missed} of {len(chosen)} caught, {alarms} false alarms\n")
    return 1 if missed or alarms else 0


@contextlib.contextmanager
def whole_folder() -> Generator[Path]:
    """Kept with CHAOS_KEEP."""
    folder = Path(tempfile.mkdtemp(prefix="planted-"))
    yield folder
    if not os.environ.get("CHAOS_KEEP"):
        shutil.rmtree(folder)


def tell(line: str, report: Report) -> None:
    found = "".join(f"    {check}: {len(each)}, {each[0][:140]}\n" for check, each in report.problems.items())
    sys.stdout.write(f"{line}\n{found}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
