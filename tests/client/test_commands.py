"""`tideq submit|tasks|dlq|workers|queue` against a real service: what they say, and how they end."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.api.bench import Bench, Json, held
from tests.api.running import TIDEQ
from tests.client.commands import Run, answer, environ_for, line_within, lines, runner
from tests.client.workshop import do_one, fail_one, held_back_worker, recorded
from tideq.api.schemas.blocked_types import OPEN
from tideq.client import AsyncClient

NOBODY = "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5"


@pytest.fixture
def form() -> str:
    """The client at hand only looks on here."""
    return "async"


@pytest.fixture
def run(url: str) -> Run:
    return runner(url)


class TestSubmit:
    async def test_everything_that_can_be_said_arrives(self, run: Run, client: AsyncClient, task_type: str) -> None:
        said = answer(
            run(
                *("submit", task_type, '{"width": 640, "ratio": 0.10000000000000000555}'),
                *("--priority", "high", "--delay", "1h30m", "--timeout", "90s", "--max-retries", "7"),
                *("--capability", "gpu,large", "--tag", "customer=c=118", "--tag", "tier=gold"),
                *("--key", task_type, "-o", "json"),
            )
        )

        task = await client.get(said["task_id"])
        assert bytes(task.raw_parameters) == b'{"width":640,"ratio":0.10000000000000000555}'
        assert (task.priority, task.timeout_seconds, task.max_retries) == ("high", 90, 7)
        assert (task.required_capabilities, task.tags) == (("gpu", "large"), {"customer": "c=118", "tier": "gold"})
        assert (task.idempotency_key, task.eligible_at) == (task_type, task.visible_at)
        assert task.visible_at is not None
        assert (task.visible_at - task.created_at).total_seconds() == 5_400

    async def test_parameters_come_from_a_file_or_from_standard_input(
        self, run: Run, client: AsyncClient, task_type: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "task.json"
        file.write_text('{"from": "file"}')

        filed = answer(run("submit", task_type, f"@{file}", "-o", "json"))
        piped = answer(run("submit", task_type, "-", "-o", "json", given='{"from": "pipe"}'))

        assert (await client.get(filed["task_id"])).parameters == {"from": "file"}
        assert (await client.get(piped["task_id"])).parameters == {"from": "pipe"}

    async def test_lines_become_as_many_tasks(self, run: Run, client: AsyncClient, task_type: str) -> None:
        text = "\n".join(f'{{"n": {n}}}' for n in range(1_200))

        submitted = lines(run("submit", task_type, "--lines", "-", "-o", "jsonl", given=text))

        assert len({each["task_id"] for each in submitted}) == 1_200
        assert (await client.get(submitted[-1]["task_id"])).parameters == {"n": 1_199}

    async def test_waiting_ends_as_the_task_did(self, run: Run, workers: Bench, task_type: str) -> None:
        good = asyncio.create_task(asyncio.to_thread(run, "submit", task_type, "--wait", "-o", "json"))
        await workers.poll(await workers.register(task_types=[f"{task_type}-none"]))
        worker_id = await workers.register(task_types=[task_type])
        task = await workers.claimed(worker_id, wait_seconds=20)
        await workers.tell(worker_id, "start", task)
        await workers.tell(worker_id, "result", task, status="completed", result={"pages": 27})

        assert answer(await good)["result"] == {"pages": 27}

    def test_a_wait_that_is_too_short_fails_and_says_so(self, run: Run, task_type: str) -> None:
        done = run("submit", task_type, "--wait-seconds", "0.1", "-o", "json")

        assert answer(done, 1)["status"] == "queued"
        assert "is still queued" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            (("{not json",), "is not JSON"),
            (("[1]",), "is not a JSON object"),
            (("@no/such/file",), "No such file"),
            (("{}", "--delay", "soon"), "is not a duration"),
            (("{}", "--run-at", "tomorrow"), "neither an instant"),
            (("{}", "--tag", "gold"), "not name=value"),
            (("{}", "--priority", "urgent"), "urgent"),
        ],
    )
    def test_what_was_asked_wrongly_is_told_in_a_line(
        self, run: Run, task_type: str, arguments: tuple[str, ...], complaint: str
    ) -> None:
        done = run("submit", task_type, *arguments)

        assert (done.returncode, done.stdout) == (2, "")
        assert complaint in done.stderr
        assert len(done.stderr.splitlines()) == 1


class TestTasks:
    async def test_a_list_is_the_same_in_every_form(self, run: Run, client: AsyncClient, task_type: str) -> None:
        ids = [(await client.submit(task_type, {"n": n}, tags={"t": task_type})).task_id for n in range(3)]
        await recorded(client, ids[-1])
        command = ("tasks", "list", "--type", task_type, "--status", "queued,failed", "--tag", f"t={task_type}")

        table = run(*command, "--since", "1h").stdout.splitlines()
        document = answer(run(*command, "-o", "json"))
        one_a_line = lines(run(*command, "--limit", "2", "-o", "jsonl"))

        assert table[0].split()[:3] == ["TASK", "TYPE", "STATUS"]
        assert [line.split()[0] for line in table[1:]] == ids[::-1]
        assert [task["task_id"] for task in document] == ids[::-1]
        assert document[0]["parameters"] == {"n": 2}
        assert [task["task_id"] for task in one_a_line] == ids[:0:-1]

    async def test_one_is_shown_with_its_history(
        self, run: Run, client: AsyncClient, workers: Bench, task_type: str
    ) -> None:
        task_id = (await client.submit(task_type, {"n": 1})).task_id
        await do_one(workers, task_type, {"pages": 27})
        await recorded(client, task_id)

        table = run("tasks", "get", task_id, "--history").stdout
        document = answer(run("tasks", "get", task_id, "--history", "-o", "json"))

        assert all(word in table for word in (task_id, "completed", '{"pages":27}', "assigned", "claimed"))
        assert document["result"] == {"pages": 27}
        assert [change["state"] for change in document["state_history"]][-1] == "completed"

    async def test_several_are_cancelled_and_retried_and_the_wrong_one_told(
        self, run: Run, client: AsyncClient, task_type: str
    ) -> None:
        first, second = [(await client.submit(task_type)).task_id for _ in range(2)]

        cancelled = run("tasks", "cancel", first, NOBODY, second, "-o", "jsonl")
        again = run("tasks", "cancel", first)
        retried = run("tasks", "retry", first, second, "--priority", "high", "-o", "jsonl")

        assert cancelled.returncode == 3
        assert cancelled.stdout.count('"cancelled"') == 2
        assert NOBODY in cancelled.stderr
        assert (again.returncode, first in again.stderr) == (1, True)
        assert [each["status"] for each in lines(retried)] == ["queued", "queued"]
        assert (await client.get(first)).priority == "high"

    async def test_an_explanation_is_shown(self, run: Run, client: AsyncClient, task_type: str) -> None:
        task_id = (await client.submit(task_type)).task_id

        assert f"no active worker serves {task_type}" in run("tasks", "explain", task_id).stdout

    async def test_watching_tells_what_happens_and_ends_as_the_task_did(
        self, url: str, client: AsyncClient, workers: Bench, task_type: str
    ) -> None:
        task_id = (await client.submit(task_type, max_retries=0)).task_id
        watching = await asyncio.create_subprocess_exec(
            *(TIDEQ, "tasks", "watch", task_id, "-o", "jsonl"), env=environ_for(url), stdout=subprocess.PIPE
        )
        assert watching.stdout is not None
        worker_id = await workers.register(task_types=[task_type])
        task = await _claimed_before_its_eyes(workers, worker_id, watching.stdout)
        await workers.tell(worker_id, "start", task)
        await workers.tell(worker_id, "result", task, status="failed", error={"message": "no", "retriable": False})

        rest, _ = await watching.communicate()

        assert watching.returncode == 1
        assert rest.splitlines()[-1].count(b'"status":"failed"') == 1

    async def test_watching_a_finished_task_shows_how_it_ended(
        self, run: Run, client: AsyncClient, workers: Bench, task_type: str
    ) -> None:
        good, bad = [(await client.submit(task_type)).task_id for _ in range(2)]
        await do_one(workers, task_type, "fine")
        await fail_one(workers, task_type, "no such page")

        well, badly = run("tasks", "watch", good), run("tasks", "watch", bad)

        assert (well.returncode, "fine" in well.stdout) == (0, True)
        assert (badly.returncode, "no such page" in badly.stdout) == (1, True)


class TestDeadLetters:
    @pytest.fixture
    async def dead(self, client: AsyncClient, workers: Bench, task_type: str) -> list[str]:
        ids: list[str] = []
        for _ in range(2):
            ids.append((await client.submit(task_type, max_retries=0)).task_id)
            await fail_one(workers, task_type, "upstream 10.0.0.7 timed out", retriable=True)
        await recorded(client, ids[-1])
        return ids

    async def test_they_are_listed_grouped_counted_and_sent_back(
        self, run: Run, client: AsyncClient, dead: list[str], task_type: str
    ) -> None:
        listed = answer(run("dlq", "list", "--type", task_type, "-o", "json"))
        (pattern,) = [each for each in answer(run("dlq", "patterns", "-o", "json")) if each["task_type"] == task_type]
        preview = answer(run("dlq", "replay", "--pattern", pattern["pattern"], "--dry-run", "-o", "json"))
        unasked = run("dlq", "replay", "--type", task_type)
        still = {(await client.get(task_id)).status for task_id in dead}
        done = answer(run("dlq", "replay", "--type", task_type, "--yes", "-o", "json"))

        assert [letter["task_id"] for letter in listed] == dead[::-1]
        assert (pattern["count"], preview["matched"], preview["replayed"]) == (2, 2, 0)
        assert (unasked.returncode, unasked.stdout) == (1, "")
        assert "Replay 2 dead letters? Confirm with --yes." in unasked.stderr
        assert still == {"dead_letter"}
        assert (done["matched"], done["replayed"]) == (2, 2)

    async def test_lists_say_of_how_many_errors_they_show_the_last(
        self, run: Run, client: AsyncClient, workers: Bench, dead: list[str], task_type: str
    ) -> None:
        await client.retry(dead[0])
        await fail_one(workers, task_type, "upstream is gone", retriable=True)
        await recorded(client, dead[0])

        tables = [run(*command, "list", "--type", task_type).stdout for command in (("tasks",), ("dlq",))]

        for again, once in (sorted(table.splitlines()[1:]) for table in tables):
            assert again.startswith(dead[0])
            assert again.endswith("last of 2: upstream is gone")
            assert once.endswith("  upstream 10.0.0.7 timed out")

    async def test_those_named_are_sent_back(self, run: Run, client: AsyncClient, dead: list[str]) -> None:
        answered = lines(run("dlq", "replay", *dead, "--priority", "low", "-o", "jsonl"))

        assert [each["task_id"] for each in answered] == dead
        assert {(await client.get(task_id)).priority for task_id in dead} == {"low"}

    def test_all_of_them_must_be_meant(self, run: Run) -> None:
        assert run("dlq", "replay").returncode == 2
        assert run("dlq", "replay", NOBODY, "--all").returncode == 2


class TestFleetAndQueue:
    async def test_workers_are_listed_and_drained(self, run: Run, workers: Bench, task_type: str) -> None:
        worker_id = await workers.register(task_types=[task_type], name="resizer")

        table = run("workers", "list", "--status", "active").stdout
        drained = run("workers", "drain", worker_id, "nobody", "-o", "jsonl")

        assert worker_id in table
        assert drained.returncode == 3
        assert '"draining"' in drained.stdout
        assert "nobody" in drained.stderr

    async def test_one_worker_is_shown_with_why_it_gets_no_work(self, run: Run, workers: Bench, task_type: str) -> None:
        worker_id = await workers.register(task_types=[task_type], name="resizer")
        said = {"status": "draining", "current_load": 2}
        await workers.call("POST", f"/internal/workers/{worker_id}/heartbeat", said)

        shown = run("workers", "show", worker_id)
        listed = run("workers", "list", "--status", "draining").stdout
        missing = run("workers", "show", "nobody")

        fields = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines() if " " in line)
        assert (fields["status"], fields["reason"], fields["current_load"]) == ("draining", "draining_by_itself", "2")
        assert fields["since"].startswith("20")
        assert "draining_by_itself" in next(line for line in listed.splitlines() if worker_id in line)
        assert missing.returncode == 3

    async def test_a_worker_that_fails_too_often_is_listed_with_the_type_it_is_held_back_from(
        self, run: Run, client: AsyncClient, workers: Bench, task_type: str
    ) -> None:
        worker_id = await held_back_worker(client, workers, task_type)

        table = run("workers", "list").stdout
        listed = {each["worker_id"]: each for each in answer(run("workers", "list", "-o", "json"))}

        (row,) = [line for line in table.splitlines() if worker_id in line]
        (blocked_types,) = listed[worker_id]["blocked_types"]
        assert f"{task_type} until {blocked_types['until'][11:19]}Z" in row
        assert (blocked_types["task_type"], blocked_types["reason"]) == (task_type, OPEN)

    async def test_the_queue_is_shown_paused_and_resumed(self, run: Run, client: AsyncClient, task_type: str) -> None:
        await client.submit(task_type)

        stats = answer(run("queue", "stats", "-o", "json"))
        table = run("queue", "stats").stdout
        paused = answer(run("queue", "pause", task_type, "--reason", "repairs", "--for", "2h", "-o", "json"))
        resumed = answer(run("queue", "resume", task_type, "-o", "json"))

        assert stats["queue"]["by_type"][task_type] == 1
        assert "queue.total_depth" in table
        (entry,) = [limit for limit in paused if limit["task_type"] == task_type]
        assert (entry["paused"], entry["reason"], entry["resume_at"] is None) == (True, "repairs", False)
        assert not [limit for limit in resumed if limit["task_type"] == task_type and limit["paused"]]

    def test_limits_are_set_one_by_one_and_lifted(self, run: Run, task_type: str) -> None:
        def limits(*options: str) -> list[tuple[float, int | None]]:
            said = answer(run("queue", "limits", *options, "-o", "json"))
            return [
                (each["tasks_per_second"], each["max_executing"]) for each in said if each["task_type"] == task_type
            ]

        assert limits(task_type, "--rate", "2.5") == [(2.5, None)]
        assert limits(task_type, "--max-executing", "3") == [(2.5, 3)]
        assert limits(task_type, "--rate", "5") == [(5, 3)]
        assert limits() == [(5, 3)]
        assert limits(task_type, "--lift") in ([], [(0, None)])


async def _claimed_before_its_eyes(workers: Bench, worker_id: str, told: asyncio.StreamReader) -> Json:
    """That a command has begun to watch shows only in what it tells: so claim, and hand back, until it tells."""
    while True:
        task = await workers.claimed(worker_id)
        while line := await line_within(told):
            if b'"assigned"' in line:
                return task
        await workers.sync(worker_id, releases=[held(task)])
