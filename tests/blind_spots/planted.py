"""Mistakes that no test found once: each is put into a copy of the tree, where its test must fail.

`python -m tests.blind_spots [word…]` plants those whose name has the words, or all, and says which were missed.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

TREE = Path(__file__).parents[2]
PARTS = ("api", "bench", "examples", "helm", "persistence", "queue_core", "tests", "tideq", "workers", "pyproject.toml")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "node_modules")
FAILED = 1
"""Pytest's exit status where tests ran and some failed; any other is a mistake of this list."""
SECONDS = 120


class Edit(NamedTuple):
    path: str
    right: str
    wrong: str


class Mistake(NamedTuple):
    test: str
    edits: tuple[Edit, ...]


def _mistake(test: str, *edits: tuple[str, str, str]) -> Mistake:
    return Mistake(test, tuple(Edit(*edit) for edit in edits))


ZONES, TRIALS = "tests/history/test_ties_and_zones.py", "tests/partitions/test_circuits.py"
BROKEN, BACK_SOON = "tests/workers/test_broken_types.py", "tests/unit/test_back_soon.py"
DUTIES, CONTROLS = "tests/history/test_duties.py", "tests/contract/test_controls.py"
SIGNALS, CREW = "tests/integration/test_signals_at_start.py", "tests/workers/test_crew.py"
BY_UTC = 'UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")'
BY_LOCAL_TIME = 'None).isoformat(timespec="milliseconds") + "Z"'

MISTAKES = {
    "a probe follows a redirect": _mistake(
        "tests/monitor/test_prober.py::test_a_redirect_is_not_followed",
        (
            "workers/monitor/probe.py",
            '        return line.split(b" ", 2)[:2] in (',
            '        if b" 302 " in line:\n'
            '            head = await reader.readuntil(b"\\r\\n\\r\\n")\n'
            '            return await _request_health(address, int(head.split(b"127.0.0.1:")[1].split(b"/")[0]))\n'
            '        return line.split(b" ", 2)[:2] in (',
        ),
    ),
    "the checkpoint is written after the rows' transaction": _mistake(
        f"{ZONES}::test_rows_are_not_to_be_seen_before_their_checkpoint",
        (
            "persistence/replication/writer.py",
            "            await self._checkpoints.move(self._connection, before, after)\n",
            "",
        ),
        (
            "persistence/replication/writer.py",
            "                await self._write_or_halve(batch.changes, batch.definitions, batch.rows)\n\n",
            "                await self._write_or_halve(batch.changes, batch.definitions, batch.rows)\n"
            "        await self._checkpoints.move(self._connection, before, after)\n\n",
        ),
    ),
    "dead letters of one instant are skipped by the cursor": _mistake(
        f"{ZONES}::test_a_page_goes_on_among_tasks_that_died_in_one_instant",
        (
            "persistence/dead_letters/dead_letter_list.py",
            "%(below_at)s::timestamptz, %(below_id)s::uuid)",
            "%(below_at)s::timestamptz, '00000000-0000-0000-0000-000000000000'::uuid)",
        ),
    ),
    "steps are listed by their instants": _mistake(
        f"{ZONES}::test_steps_come_in_the_order_of_their_epochs_and_versions_whatever_their_instants",
        ("persistence/queries/transitions.sql", "ORDER BY epoch, version", "ORDER BY at"),
    ),
    "the clock may run back after a rebuild": _mistake(
        f"{ZONES}::test_after_a_rebuild_time_goes_on_from_where_history_was",
        ("persistence/recovery/rebuild.py", "close(status, checkpoint.now_ms)", "close(status, 0)"),
        ("persistence/recovery/rebuild.py", "str(epoch), checkpoint.now_ms)", "str(epoch), 0)"),
    ),
    "rows are written in local time": _mistake(
        f"{ZONES}::test_instants_are_the_same_in_every_zone",
        (
            "persistence/replication/rows.py",
            "return EPOCH + timedelta(milliseconds=int(milliseconds))",
            "return datetime.fromtimestamp(int(milliseconds) / 1000).replace(tzinfo=UTC)",
        ),
    ),
    "a list is searched by local time": _mistake(
        f"{ZONES}::test_instants_are_the_same_in_every_zone",
        ("persistence/read/filters.py", "LATEST_MS) / 1000, UTC)", "LATEST_MS) / 1000).replace(tzinfo=UTC)"),
    ),
    "an answer gives local time": _mistake(
        "tests/api/test_submission.py::test_run_at_is_an_instant_however_it_is_written",
        ("api/schemas/times.py", BY_UTC, BY_LOCAL_TIME),
    ),
    "an instant without an offset is local time": _mistake(
        "tests/api/test_submission.py::test_run_at_is_an_instant_however_it_is_written",
        ("api/schemas/times.py", "instant.replace(tzinfo=UTC)", "instant"),
    ),
    "a line of the journal gives local time": _mistake(
        "tests/telemetry/test_lines.py::test_a_line_gives_its_instant_in_utc_wherever_the_process_lives",
        ("workers/monitor/journal/transition_log.py", BY_UTC, BY_LOCAL_TIME),
    ),
    "a partition goes when its beginning is old": _mistake(
        "tests/history/test_partitions.py::test_a_partition_stays_until_its_end_is_old",
        ("persistence/schema/partitions.py", "if each.end_ms <= ended_ms", "if each.start_ms <= ended_ms"),
    ),
    "a repeated poll looks at some partitions only": _mistake(
        "tests/partitions/test_limits.py::TestManyPartitions::"
        "test_a_repeated_poll_is_answered_the_same_wherever_its_tasks_lie",
        ("queue_core/partitioning/claim_merge.py", "chosen = every if poll.poll_id else ", "chosen = "),
    ),
    "trials are counted in the task's own partition only": _mistake(
        f"{TRIALS}::test_explain_counts_the_trials_of_all_partitions",
        ("queue_core/inspector.py", "        if not on_trial:", "        if True:"),
    ),
    "a worker without trials left counts as serving": _mistake(
        "tests/api/test_blocked_types.py::test_a_task_whose_only_worker_is_on_trial_waits_for_the_results_of_its_trials",
        ("queue_core/partition_views.py", " and self.trials_left != 0", ""),
    ),
    "a timeout's jitter only goes later": _mistake(
        "tests/contract/test_sweep.py::test_timeouts_of_one_sweep_come_back_earlier_and_later_than_their_base_delay",
        ("queue_core/scripts/include/retry_delay.lua", "0.2 * jitter", "0.2 * math.abs(jitter)"),
    ),
    "a draining worker is given started tasks": _mistake(
        "tests/contract/test_claim_started.py::test_a_draining_worker_gets_nothing_and_is_told_to_drain",
        (
            "queue_core/scripts/include/claim_allowance.lua",
            "status_of(worker[1], worker[4]) == 'active' and wanted or 0",
            "wanted",
        ),
    ),
    "a draining worker stops its heartbeats": _mistake(
        "tests/workers/test_draining.py::"
        "test_a_task_that_outlasts_the_heartbeat_timeout_during_a_drain_is_finished_and_not_lost",
        (
            "workers/runtime/worker_process.py",
            "            if consumer.worker_id in statuses\n",
            "            if consumer.worker_id in statuses and not consumer.is_draining\n",
        ),
    ),
    "releases are lost while the service is away": _mistake(
        f"{CREW}::test_what_is_handed_back_while_the_service_is_away_arrives_once_it_is_back",
        ("workers/runtime/report_buffer.py", "        self._releases.extendleft(reversed(batch.releases))\n", ""),
    ),
    "a worker told to stop before it runs registers": _mistake(
        f"{CREW}::test_a_worker_that_was_told_to_stop_before_it_runs_asks_for_nothing",
        (
            "workers/runtime/worker_process.py",
            "            if self._is_stopping:\n                consumer.drain()\n",
            "",
        ),
    ),
    "a worker goes on for a moment after its signal": _mistake(
        f"{SIGNALS}::test_a_worker_that_was_told_to_stop_neither_registers_nor_claims",
        (
            "workers/runtime/worker_process.py",
            "loop.add_signal_handler(number, worker.stop)",
            "loop.add_signal_handler(number, lambda: loop.call_later(1, worker.stop))",
        ),
    ),
    "a worker does not log what it is held back from": _mistake(
        f"{BROKEN}::test_the_worker_says_in_its_own_log_what_it_is_held_back_from_and_until_when",
        ("workers/runtime/consumer.py", "self._circuits.update(worker_id, reply.blocked_types)", "pass"),
    ),
    "the service does not know a retry that was asked for": _mistake(
        f"{BROKEN}::test_what_a_handler_asks_for_is_not_held_against_its_worker",
        ("workers/runtime/failures.py", 'details["retry_requested"]', 'details["wished_for"]'),
    ),
    "duties pause for a minute": _mistake(
        BACK_SOON, ("queue_core/duties.py", "LONGEST_PAUSE_SECONDS = 3.0", "LONGEST_PAUSE_SECONDS = 60.0")
    ),
    "a service serves on without a duty that ended for good": _mistake(
        f"{DUTIES}::test_a_service_one_of_whose_duties_ends_for_good_ends_too",
        (
            "api/server.py",
            "[service.check_keys_when_reachable(), service.duties.wait_for_unexpected_end()]",
            "[service.check_keys_when_reachable()]",
        ),
    ),
    "nobody notices that the word on the duty board ended": _mistake(
        f"{DUTIES}::test_a_service_one_of_whose_duties_ends_for_good_ends_too",
        (
            "api/service.py",
            'duties.beside("duty board", service.duty_board.post_for_ever(duties))',
            "contextlib.AsyncExitStack()\n            asyncio.create_task(service.duty_board.post_for_ever(duties))",
        ),
    ),
    "a worker pauses for minutes": _mistake(
        BACK_SOON, ("workers/runtime/backoff.py", "MAX_DELAY_SECONDS = 5.0", "MAX_DELAY_SECONDS = 300.0")
    ),
    "readers pause as long as their pool likes": _mistake(
        BACK_SOON, ("persistence/database.py", "            reconnect_timeout=RECONNECT_SECONDS,\n", "")
    ),
    "a monitor tells lives as its own": _mistake(
        "tests/telemetry/test_processes.py::test_two_monitors_tell_every_transition_once",
        ("tideq/cli/monitor.py", "per_second, telemetry.service_name, is", 'per_second, "tideq-monitor", is'),
    ),
    "a reader of an answer may trickle": _mistake(
        "tests/api/test_slow_readers.py::test_a_reader_who_trickles_is_as_bad_as_a_body_that_does",
        ("api/http11/limits.py", "MIN_SENT_BYTES = MIN_BODY_BYTES", "MIN_SENT_BYTES = 1_024"),
    ),
    "the outbox is capped at a thousand entries": _mistake(
        "tests/contract/test_outbox.py::test_the_outbox_keeps_every_entry_until_history_has_it",
        ("queue_core/scripts/include/outbox_append.lua", "outbox_key, '*'", "outbox_key, 'MAXLEN', '1000', '*'"),
    ),
    "a limit is not counted over lanes with capabilities": _mistake(
        f"{CONTROLS}::test_most_at_once_counts_what_runs_in_other_lanes_of_the_type",
        (
            "queue_core/scripts/include/limits.lua",
            "string.match(names[i + 1], '^[^|]*') == scope",
            "names[i + 1] == scope .. '|'",
        ),
    ),
    "a limit of partitions is not counted over lanes with capabilities": _mistake(
        f"{CONTROLS}::test_most_at_once_counts_what_runs_in_other_lanes_of_the_type",
        (
            "queue_core/scripts/include/limit_usage.lua",
            "string.match(names[i + 1], '^[^|]*')",
            "string.match(names[i + 1], '^([^|]*)|$') or ''",
        ),
    ),
    "a revival keeps its deliveries": _mistake(
        "tests/contract/test_retry_and_replay.py::test_a_revival_forgets_deliveries_that_lapsed",
        (
            "queue_core/scripts/requeue.lua",
            "task.retries, task.losses, task.deliveries = 0, 0, 0",
            "task.retries, task.losses = 0, 0",
        ),
    ),
    "workers that share a host name are asked for one at a time": _mistake(
        "tests/monitor/test_prober.py::"
        "test_probes_of_workers_that_share_a_host_name_share_one_question_to_the_resolver",
        ("workers/monitor/addresses.py", "        return _resolving[host]\n", '        raise OSError("not yet")\n'),
    ),
    "a process without threads has no heartbeats": _mistake(
        f"{CREW}::test_heartbeats_go_on_where_the_process_gets_no_more_threads",
        ("tideq/client/heartbeat_thread.py", "except RuntimeError:", "except ZeroDivisionError:"),
    ),
    "ids are of the process's clock": _mistake(
        "tests/contract/test_submit.py::test_ids_are_of_the_stores_time_whatever_the_process_takes_it_for",
        ("queue_core/engine.py", "TaskIds(clock_ms=time.now_ms)", "TaskIds()"),
    ),
    "the default partition keeps everything": _mistake(
        "tests/history/test_process_clocks.py::test_tasks_that_lie_in_no_range_go_once_they_ended_too_long_ago",
        (
            "persistence/schema/partitions.py",
            "        await self._prune_default(clocks.database_ms - self._settings.retention_ms, died_after_ms)\n",
            "",
        ),
    ),
    "of two orders what most partitions heard holds": _mistake(
        "tests/partitions/test_controls_away.py::test_what_was_said_last_holds_however_few_partitions_heard_it",
        (
            "queue_core/controls.py",
            "    instant = max(each.instant for each in versions)\n",
            "    instant = 0\n",
        ),
        ("queue_core/controls.py", "each.instant == instant and (", "("),
    ),
    "claims of one worker do not wait for each other's trials": _mistake(
        f"{TRIALS}::test_claims_of_one_worker_at_one_instant_give_it_three_trials_together",
        (
            "queue_core/partitioning/claim_merge.py",
            "            if not turn.is_requested and await turn.request():\n",
            "            turn.is_mine = True\n            if False:\n",
        ),
    ),
    "of a batch also what is known counts": _mistake(
        "tests/partitions/test_batches.py::TestPartlyKnown",
        (
            "queue_core/partitioning/submit_router.py",
            "Demand(demand.client_id, found.new_count,",
            "Demand(demand.client_id, demand.task_count,",
        ),
    ),
    "a bulk replay tells no orders": _mistake(
        "tests/telemetry/test_orders.py::"
        "test_lives_that_a_bulk_replay_begins_link_to_an_order_each_and_that_to_the_request",
        ("api/routes/dlq.py", ", on_requeued=spans)", ", on_requeued=spans and (lambda *_: None))"),
    ),
    "open circuits of a type are not in the metrics": _mistake(
        "tests/api/test_blocked_types.py::test_the_metrics_count_open_circuits_and_by_type",
        ("api/metrics/queue_metrics.py", "workers.open_circuits_by_type.items()", "{}.items()"),
    ),
    "what JSON cannot say of a failure is nothing": _mistake(
        "tests/workers/test_failures.py::"
        "test_details_with_a_number_that_json_has_not_are_printed_and_not_told_as_nothing",
        ("workers/runtime/failures.py", "is_storable = is_whole and ", "is_storable = "),
    ),
}
CHEAPEST = (
    "a probe follows a redirect",
    "the checkpoint is written after the rows' transaction",
    "an instant without an offset is local time",
    "releases are lost while the service is away",
    "a reader of an answer may trickle",
)
"""Planted in every run of the suites: that the list itself works."""


class Copy:
    """Of everything the tests need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for part in PARTS:
            if (TREE / part).is_dir():
                shutil.copytree(TREE / part, folder / part, symlinks=True, ignore=LEFT_OUT)
            else:
                shutil.copy(TREE / part, folder / part)
        for made in (".tools", ".venv"):
            if (TREE / made).exists():
                (folder / made).symlink_to(TREE / made)

    @contextlib.contextmanager
    def with_planted(self, mistake: Mistake) -> Generator[None]:
        """Raises LookupError where the tree no longer says what was right."""
        paths = {self.folder / edit.path for edit in mistake.edits}
        before = {path: path.read_text() for path in paths}
        try:
            for path, right, wrong in mistake.edits:
                text = (self.folder / path).read_text()
                if right not in text:
                    raise LookupError(f"{path} no longer says {right!r}: plant this mistake anew")
                (self.folder / path).write_text(text.replace(right, wrong))
            yield
        finally:
            for path, text in before.items():
                path.write_text(text)

    def run(self, *tests: str) -> "subprocess.CompletedProcess[str]":
        """Nothing compiled is kept: a file may change twice within the second that its time is told in."""
        environ = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-n0", "-x", "-p", "no:cacheprovider", "--tb=line", *tests]
        command.append(f"--timeout={SECONDS}")
        return subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)

    def finds(self, mistake: Mistake) -> bool:
        with self.with_planted(mistake):
            ended = self.run(mistake.test)
        if ended.returncode not in (0, FAILED):
            raise LookupError(f"{mistake.test} cannot be run: {ended.stdout[-2_000:]}{ended.stderr[-2_000:]}")
        return ended.returncode == FAILED
