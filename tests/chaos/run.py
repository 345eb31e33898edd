"""One run from beginning to end: start everything, load and faults, heal, drain, gather, judge."""

import asyncio
import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.chaos import site as place
from tests.chaos.callers import Caller
from tests.chaos.checker import problems_of, told
from tests.chaos.evidence import Evidence, Rules, read_history
from tests.chaos.faults import KILLING, Fault, inflict, make_plan
from tests.chaos.hands import Hand
from tests.chaos.levels import Level
from tests.chaos.lookout import LIVE, Lookout
from tests.chaos.notes import Notebook, read_lines
from tests.chaos.producers import TASKS_PATH, Producer
from tests.chaos.site import Site, open_site
from tests.history.checker import connected
from tideq.queue_core.background import background_task

SCHEMA, PREFIX = f"tideq_{place.QUEUE}", f"tideq:{{{place.QUEUE}:0}}:"
CATCH_UP_SECONDS = 30
RECOUNT_SECONDS = 20
LOOK_SECONDS = 2.0
LAST_READS = 300
OFFSETS_MS = {"high": 0, "medium": 100_000_000, "low": 200_000_000}
RULES = Rules(
    assignment_ms=place.ASSIGNMENT_MS,
    heartbeat_ms=place.HEARTBEAT_MS,
    retry_base_ms=place.RETRY_BASE_MS,
    max_losses=place.MAX_LOSSES,
    max_deliveries=place.MAX_DELIVERIES,
    timeouts_ms={"hand": 5_000, "work": 20_000},
    offsets_ms=OFFSETS_MS,
)


@dataclass(frozen=True)
class Report:
    level: Level
    seed: int
    folder: Path
    figures: dict[str, Any]
    problems: dict[str, list[str]]

    @property
    def is_good(self) -> bool:
        return not self.problems

    def told(self) -> str:
        again = f"{self.level.variables} CHAOS_SEED={self.seed} python -m tests.chaos"
        figures = "\n".join(f"  {name}: {value}" for name, value in self.figures.items())
        head = f"chaos {self.level.name}, seed {self.seed}: {'good' if self.is_good else 'BROKEN'}\n{figures}"
        return head if self.is_good else f"{head}\n{told(self.problems)}\nrepeat: {again}\nlogs: {self.folder}"


Act = Callable[[Site], Awaitable[None]]


def run(level: Level, seed: int, folder: Path, code: Path | None = None, act: Act | None = None) -> Report:
    """`code` is another tree for the processes to run; `act` is done to them before the faults begin."""
    folder.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_run(level, seed, folder.resolve(), code, act))


async def _run(level: Level, seed: int, folder: Path, code: Path | None, act: Act | None) -> Report:
    notebook = Notebook(folder / "notes.jsonl")
    began = time.monotonic()
    with contextlib.closing(notebook):
        async with open_site(folder, notebook, level.staff, code) as site:
            evidence = await _live(level, seed, site, act)
    problems = problems_of(evidence)
    report = Report(level, seed, folder, figures_of(evidence, time.monotonic() - began), problems)
    (folder / "report.txt").write_text(report.told() + "\n")
    return report


async def _live(level: Level, seed: int, site: Site, act: Act | None) -> Evidence:
    plan = make_plan(seed, level.seconds, level.fault_seconds, level.profile, site)
    (site.folder / "plan.json").write_text(json.dumps(plan, indent=1))
    lookout = Lookout(lambda: site.valkey.redis_url, PREFIX, site.notebook, LOOK_SECONDS)
    before = await _facts(site, lookout)
    async with background_task(lookout.run()):
        async with _load(level, seed, site, lookout):
            await _at_least(level.seconds, _trouble(site, plan, act))
            await site.until_ready()
        is_drained = not (await lookout.look()).queue
    evidence = Evidence(RULES, site.notebook.notes)
    evidence.ends = {"before": before, "is_drained": is_drained, "left out": site.shim.missing or "nothing"}
    await _gather(evidence, site, lookout)
    return evidence


async def _trouble(site: Site, plan: list[Fault], act: Act | None) -> None:
    if act is not None:
        await act(site)
    await inflict(site, plan)


async def _at_least(seconds: float, work: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(work)
        group.create_task(asyncio.sleep(seconds))


@contextlib.asynccontextmanager
async def _load(level: Level, seed: int, site: Site, lookout: Lookout) -> AsyncGenerator[None]:
    """Producers end with the block; scripted workers stay until everything is drained."""
    callers = [
        Caller(f"{kind}{number}", site.urls, site.notebook, seed)
        for kind, count in (("p", level.producers), ("h", level.hands))
        for number in range(count)
    ]
    producers = [Producer(each, level) for each in callers[: level.producers]]
    hands = [Hand(each) for each in callers[level.producers :]]
    lives = [asyncio.create_task(each.run()) for each in (*producers, *hands)]
    try:
        yield
        for producer in producers:
            producer.is_over = True
        await asyncio.gather(*lives[: level.producers])
        await _drained(lookout, level.drain_seconds)
    finally:
        for each in (*producers, *hands):
            each.is_over = True
        await asyncio.gather(*lives)
        for caller in callers:
            await caller.close()


async def _drained(lookout: Lookout, seconds: float) -> None:
    """Until nothing is live, or the time is up."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (await lookout.look()).queue:
                await asyncio.sleep(0.2)


async def _gather(evidence: Evidence, site: Site, lookout: Lookout) -> None:
    is_caught_up = await _caught_up(site, lookout)
    await _read_some(evidence, site)
    evidence.look = await lookout.look()
    evidence.ends["after"] = {**await _facts(site, lookout), "is_caught_up": is_caught_up}
    evidence.ends["stats"] = await _stats(site)
    evidence.ledger = list(read_lines(site.ledger))
    await asyncio.to_thread(read_history, evidence, site.postgres.database_url, SCHEMA)


async def _caught_up(site: Site, lookout: Lookout) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CATCH_UP_SECONDS):
            while await asyncio.to_thread(_checkpoint, site) != await lookout.last_entry():
                await asyncio.sleep(0.1)
            return True
    return False


def _checkpoint(site: Site) -> str:
    with connected(site.postgres.database_url, SCHEMA) as connection:
        row = connection.execute("SELECT entry_id FROM checkpoints").fetchone()
    return row[0] if row else ""


async def _facts(site: Site, lookout: Lookout) -> dict[str, int]:
    def sessions() -> int:
        with connected(site.postgres.database_url, SCHEMA) as connection:
            found = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = 'tideq'").fetchone()
        return found[0] if found else 0

    return {**await lookout.facts(), "sessions": await asyncio.to_thread(sessions)}


async def _read_some(evidence: Evidence, site: Site) -> None:
    """Through the front door, as a client would: many of them are only in history by now."""
    ids = [task_id for note in evidence.of("acknowledged") for task_id in note["ids"]]
    step = max(len(ids) // LAST_READS, 1)
    async with httpx.AsyncClient(timeout=20) as http:
        for number, task_id in enumerate(ids[::step]):
            answer = await http.get(f"{site.urls[number % len(site.urls)]}{TASKS_PATH}/{task_id}")
            body = answer.json()
            facts: dict[str, Any] = {"type": "ok" if answer.is_success else "fail", "status": answer.status_code}
            said = [body.get("status"), body.get("version")]
            retry_after = answer.headers.get("retry-after")
            site.notebook.note("last_read", task_id=task_id, told=said, retry_after=retry_after, **facts)


async def _stats(site: Site) -> dict[str, Any]:
    """Once totals are what history has, or the time for a recount is up."""
    expected, deadline = await asyncio.to_thread(_ended, site), time.monotonic() + RECOUNT_SECONDS
    async with httpx.AsyncClient(timeout=20) as http:
        while True:
            stats = (await http.get(f"{site.urls[0]}/api/v1/queue/stats")).json()
            ended = {
                f"{task_type} {state}": count
                for task_type, states in stats["queue"].get("by_type_and_state", {}).items()
                for state, count in states.items()
                if count and state not in LIVE
            }
            if "totals" not in stats["queue"]:
                ended = expected  # a version before they were counted, at the end of the way back
            if ended == expected or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.5)
        metrics = (await http.get(f"{site.urls[0]}/metrics")).text
    dead = re.search(r"^tideq_dead_letters(?:\{.*\})? (\S+)$", metrics, re.MULTILINE)
    by_state, dead_letters = stats["queue"]["by_state"], int(float(dead[1])) if dead else -1
    return {"by_state": by_state, "dead_letters": dead_letters, "ended": ended}


def _ended(site: Site) -> dict[str, int]:
    query = "SELECT task_type || ' ' || state, count(*) FROM tasks WHERE ended_at IS NOT NULL GROUP BY 1"
    with connected(site.postgres.database_url, SCHEMA) as connection:
        return dict(connection.execute(query).fetchall())


def figures_of(evidence: Evidence, seconds: float) -> dict[str, Any]:
    """What a reader should know of a run besides whether it was good."""
    faults = Counter(note["name"] for note in evidence.of("fault"))
    calls = Counter(note["type"] for note in evidence.notes if "type" in note)
    accepted = {task_id for note in evidence.of("acknowledged") for task_id in note["ids"]}
    begun = Counter(line["task_id"] for line in evidence.ledger if line["event"] == "start")
    reasons = Counter(event.reason for event in evidence.all_events())
    crashes = evidence.of("ended")
    return {
        "seconds": round(seconds),
        "tasks accepted": len(accepted),
        "tasks in history": len(evidence.tasks),
        "events": len(evidence.all_events()),
        "endings": dict(Counter(row.state for row in evidence.tasks.values())),
        "faults": faults.total(),
        "kills": sum(faults[name] for name in KILLING) + sum(note["code"] == -9 for note in crashes),
        "by name": dict(faults),
        "calls": dict(calls),
        "lost to wipes and fail-overs, not yet in history": len(accepted - evidence.tasks.keys()),
        "executions a task": round(begun.total() / max(len(begun), 1), 3),
        "recovered": {
            name: reasons[name] for name in ("assignment_lapsed", "worker_lost", "timed_out") if reasons[name]
        },
        "processes that ended by themselves": dict(
            Counter((note["name"].split("-")[0], note["code"]) for note in crashes)
        ),
        "faults left out": evidence.ends.get("left out"),
        "looks": len(evidence.of("look")),
        "before": evidence.ends.get("before"),
        "after": evidence.ends.get("after"),
    }
