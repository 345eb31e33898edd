"""A rolling upgrade and the way back, under load: one process after the other runs the other tree, on the same stores.

The earlier tree is the one at the commit in BASELINE, taken from the repository. A balancer stands before the services,
so new connections go to the other one while a service is replaced; everything is told to end, and ends in order.
"""

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from tests.chaos.faults import Profile
from tests.chaos.levels import Level
from tests.chaos.notes import Note, read_lines, wall_ms
from tests.chaos.run import PREFIX, SCHEMA, Report, run
from tests.chaos.site import Site
from tests.history.checker import connected

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


class ShallowClone(LookupError):
    """The repository's history does not go back as far: `git fetch --unshallow` has the rest."""


def baseline(folder: Path, commit: str = BASELINE, repository: Path = TREE) -> Path:
    """The tree of the recorded commit, as far as processes import it.

    Raises ShallowClone where that is why the commit is not there, and LookupError where BASELINE names none.
    """
    archive = _git(repository, "archive", commit, *PARTS)
    if archive.returncode:
        said = archive.stderr.decode().strip()
        is_shallow = _git(repository, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
        raise (ShallowClone if is_shallow else LookupError)(f"no commit {commit} in {repository}: {said}")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "--extract", "--directory", folder], input=archive.stdout, check=True)
    if (TREE / BUILT).is_dir():
        shutil.copytree(TREE / BUILT, folder / BUILT)
    return folder


def _git(repository: Path, *words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", "-C", str(repository), *words], capture_output=True, check=False)


def upgrade_and_back(folder: Path, before: Path, after: Path) -> tuple[Report, list[str]]:
    """The report of the run, and what it says of the upgrade itself. In the order of docs/upgrading.md."""
    problems: list[str] = []

    async def act(site: Site) -> None:
        await site.command("migrate", code=after)
        problems.extend(await asyncio.to_thread(_not_migrated, site, after))
        for code in (after, before):
            await _replace_all(site, code)
        problems.extend(_set_aside(site))

    report = run(LEVEL, 1, folder, before, act)
    return report, [*problems, *problems_in(list(read_lines(folder / "notes.jsonl")))]


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


def _not_migrated(site: Site, code: Path) -> list[str]:
    """Migrations of this tree that the database does not have."""
    with connected(site.postgres.database_url, SCHEMA) as connection:
        applied = {number for (number,) in connection.execute("SELECT number FROM migrations").fetchall()}
    files = sorted((code / "persistence" / "migrations").glob("*.sql"))
    return [f"migration {file.stem} was not run" for file in files if int(file.stem.partition("_")[0]) not in applied]


def _set_aside(site: Site) -> list[str]:
    """Since the store began: tasks that a process could not read at some time, also where they are back by now."""
    driver: Any = redis.Redis
    with driver.from_url(site.valkey.redis_url) as client:
        count = int(client.hget(f"{PREFIX}totals", "unreadable") or 0)
    return [f"tasks were set aside {count} times"] if count else []


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


def problems_in(notes: Sequence[Note]) -> list[str]:
    """What a caller saw of it: every submission is answered and taken, and every process ends in order."""
    submitted = [note for note in notes if note["f"] == "submit" and note["type"] != "ok"]
    crashed = [note for note in notes if note["f"] == "ended" or (note["f"] == "left" and note["code"] != 0)]
    return [
        *(_words(note) for note in submitted if note["status"] == 0 or note["status"] >= 400),
        *(f"{note['name']} ended with {note['code']}" for note in crashed),
    ]


def _words(note: Note) -> str:
    if note["status"] == 0:
        return f"a submission to {note['asked']} was not answered: {note['problem']}"
    return f"a submission was answered with {note['status']} {note.get('problem')}"
