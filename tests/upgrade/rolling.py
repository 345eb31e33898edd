"""A rolling upgrade and the way back, under load: one process after the other runs the other tree, on the same stores.

The earlier tree is the one at the commit in BASELINE, taken from the repository. A balancer stands before the services,
so new connections go to the other one while a service is replaced; everything is told to end, and ends in order.
"""

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import redis

from tests.chaos.faults import Profile
from tests.chaos.levels import Level
from tests.chaos.notes import read_lines, wall_ms
from tests.chaos.run import PREFIX, Report, run
from tests.chaos.site import Site

TREE = Path(__file__).parents[2]
PARTS = ("api", "persistence", "queue_core", "tideq", "workers")
BASELINE = (Path(__file__).parent / "BASELINE").read_text().strip()
CIRCUIT_MS = 60_000
BUILT = "api/dashboard/static"
CALM: Profile = {"reset": 1}
LEVEL = Level(
    "rolling",
    seconds=8,
    fault_seconds=1_000,
    batch_size=10,
    pause_seconds=0.1,
    hands=1,
    hand_share=0.05,
    poison_share=0.0,
    drain_seconds=30,
    staff={"api": 2, "monitor": 1, "replicate": 1, "worker": 2},
    profile=CALM,
)


class NoBaseline(LookupError):
    """The repository's history is not here, as in a source distribution."""


def baseline(folder: Path) -> Path:
    """The tree of the recorded commit, as far as processes import it; raises NoBaseline."""
    archive = subprocess.run(["git", "-C", str(TREE), "archive", BASELINE, *PARTS], capture_output=True, check=False)
    if archive.returncode:
        raise NoBaseline(archive.stderr.decode().strip())
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "--extract", "--directory", folder], input=archive.stdout, check=True)
    if (TREE / BUILT).is_dir():
        shutil.copytree(TREE / BUILT, folder / BUILT)
    return folder


def upgrade_and_back(folder: Path, before: Path, after: Path) -> tuple[Report, list[str]]:
    """The report of the run, and what it says of the upgrade itself."""
    unreadable: list[int] = []

    async def act(site: Site) -> None:
        for code in (after, before):
            await _replace_all(site, code)
        driver: Any = redis.Redis
        with driver.from_url(site.valkey.redis_url) as client:
            unreadable.append(client.zcard(f"{PREFIX}unreadable"))

    report = run(LEVEL, 1, folder, before, act)
    return report, [*_problems(folder), *(f"{count} tasks were set aside" for count in unreadable if count)]


def run_from_earlier(level: Level, seed: int, folder: Path) -> Report:
    """A run that begins with the tree of BASELINE, which is replaced, put back and replaced for good; then come faults.

    Under load: of the earlier version only that is expected, not that it survives what the later one does.
    """
    before = baseline(folder / "before")

    async def act(site: Site) -> None:
        began = wall_ms()
        await site.command("migrate")
        for code in (TREE, before, TREE):
            await _replace_all(site, code)
        await site.command("migrate", "finish")
        # Each version counts failures for itself: a circuit may have opened that both together would not have.
        site.notebook.note("fault", name="rolling_upgrade", target="", t0=began, t1=wall_ms() + CIRCUIT_MS)

    return run(level, seed, folder, before, act)


async def _replace_all(site: Site, code: Path) -> None:
    for name in site.names("api"):
        await _replace_service(site, name, code)
    others = [*site.names("monitor"), *site.names("replicate")]
    await asyncio.gather(*(_replace(site, name, code) for name in others))
    for name in site.names("worker"):
        await _replace(site, name, code)
    await asyncio.sleep(1)  # for the last one to work a little


async def _replace_service(site: Site, name: str, code: Path) -> None:
    """Newcomers are led to another one meanwhile, as a balancer does with what is about to end."""
    own = [proxy for way, proxy in site.proxies.items() if way.endswith(f">{name}")]
    (other,) = (each for each in site.names("api") if each != name)
    home, elsewhere = site.services[name], site.services[other]
    for proxy in own:
        proxy.lead_newcomers_to(elsewhere)
    await _replace(site, name, code)
    await site.until_ready([home])
    for proxy in own:
        proxy.lead_newcomers_to(home)


async def _replace(site: Site, name: str, code: Path) -> None:
    process = site.processes[name]
    await asyncio.to_thread(process.leave)
    process.run_code(code)
    process.start()


def _problems(folder: Path) -> list[str]:
    """What a caller saw of it: every submission is taken, and every process ends in order."""
    notes = read_lines(folder / "notes.jsonl")
    failed = [note for note in notes if note["f"] == "submit" and note["status"] >= 400 and note["type"] != "ok"]
    crashed = [note for note in notes if note["f"] == "ended" or (note["f"] == "left" and note["code"] != 0)]
    problems = [f"a submission was answered with {note['status']} {note.get('problem')}" for note in failed]
    return problems + [f"{note['name']} ended with {note['code']}" for note in crashed]
