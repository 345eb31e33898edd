"""The model test can fail: one small mistake is planted in the scripts at a time, and a short search must find it.

The files stay as they are; a script is changed on its way to the store. That the same search finds nothing where
nothing is planted is `test_model.py`. The last ones on the list were not planted when they were found.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.model.bench import STEP_COUNT, Bench
from tests.model.machine import drive
from tideq.queue_core.scripts import runner
from tideq.queue_core.scripts.runner import ScriptSource, assemble

SHORT_SEARCH = settings(
    max_examples=1_500,  # most fall within 25; ids are random, so the slowest varies
    stateful_step_count=STEP_COUNT + 1,
    phases=[Phase.generate],
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LEASED = ("start", "extend", "progress", "complete", "fail", "release")
RECOVERING = ("claim", "sweep")


class Mistake(NamedTuple):
    """Replace a piece of the named scripts, includes and all."""

    found_in: tuple[str, ...]
    right: str
    wrong: str


MISTAKES = {
    "any lease is good": Mistake(
        LEASED,
        "if task.lease ~= lease or task.worker ~= worker_id then return 'STALE_LEASE ' .. task.state end",
        "",
    ),
    "another worker may use a lease": Mistake(LEASED, "or task.worker ~= worker_id", ""),
    "a lapsed task loses its rank": Mistake(
        RECOVERING, "task.deliveries, task.attempt =", "task.rank = now task.deliveries, task.attempt ="
    ),
    "a task handed back stays hidden": Mistake(("release",), "  place_ready(task_id, task)\n  move(", "  move("),
    "a lapse costs a retry": Mistake(
        RECOVERING, "task.deliveries, task.attempt =", "task.retries = task.retries + 1 task.deliveries, task.attempt ="
    ),
    "a timeout costs no retry": Mistake(RECOVERING, "task.retries = task.retries + 1", ""),
    "a timeout is tried without end": Mistake(RECOVERING, "if task.retries >= task.max_retries then", "if false then"),
    "a lost worker costs no loss": Mistake(RECOVERING, "task.losses = task.losses + 1", ""),
    "a crash is a stampede": Mistake(RECOVERING, "began_at + moved * spacing", "began_at + spacing"),
    "the jitter is too wide": Mistake(RECOVERING, "(1 + 0.2 * jitter)", "(1 + 0.5 * jitter)"),
    "the holder is not freed": Mistake(("complete",), "    unhold(task_id, task)\n", ""),
    "the slot is not freed": Mistake(("fail",), "if counts[from] then", "if counts[from] and from ~= 'executing' then"),
    "slots count only what executes": Mistake(("claim",), "names[i] .. ':assigned'", "names[i] .. ':nothing'"),
    "a second result is accepted": Mistake(("complete",), "lease, 'executing')", "lease, 'executing', 'completed')"),
    "a result repeated is refused": Mistake(("fail",), "= earlier_outcome(task, lease, digest)", "= nil"),
    "a cancelled task stays in the set": Mistake(("cancel",), "  remove_from_queue(task_id)\n", ""),
    "a result comes after a cancel": Mistake(("complete",), "lease, 'executing')", "lease, 'executing', 'cancelled')"),
    "a replay keeps the old rank": Mistake(("requeue",), "now + offset, level", "task.rank, level"),
    "a replay keeps spent budgets": Mistake(("requeue",), "if keeps_budgets == 0 then", "if false then"),
    "a revival overwrites what lives": Mistake(("requeue",), "if is_absent and kept_record", "if kept_record"),
    "an extension shortens": Mistake(("extend",), "math.max(tonumber(task.visible_ms) or 0, ", "math.max(0, "),
    "an extension has no end": Mistake(
        ("extend",), "(tonumber(task.started_ms) or now) + max_execution_ms", "math.huge"
    ),
    "a poll repeated takes more": Mistake(("claim",), "if #handed == 0 then\n", "if true then\n"),
    "a task handed out started is lost with its answer": Mistake(
        ("claim",), "starts == 1 and 'executing' or 'assigned'", "'assigned'"
    ),
    "a task handed out started was never assigned": Mistake(
        ("claim",), "return pass_through(task_id, task, 'assigned', 'claimed', visible_text)", "return ''"
    ),
    "a task handed out started stays in its place": Mistake(
        ("claim",),
        "starts == 1 and start_attempt(task_id, tasks[task_id])",
        "starts == 1 and move(task_id, tasks[task_id], 'executing', 'started', visible_text)",
    ),
    "an answer with started tasks stays out": Mistake(("undo_claim",), "or task.state == handed_as", ""),
    "an old answer is withdrawn": Mistake(("undo_claim",), "if number == answer then", "if number then"),
    "a drained worker is given work": Mistake(
        ("claim",), "status_of(worker[1], worker[4]) == 'active' and wanted or 0", "wanted"
    ),
    "a worker's own word is not listened to": Mistake(
        ("claim",), "'state', 'profile', 'circuits', 'word')", "'state', 'profile', 'circuits')"
    ),
    "a worker's own word ends an operator's drain": Mistake(
        ("heartbeat",), "'word', word)", "'word', word, 'state', word)"
    ),
    "a pause is ignored": Mistake(("claim",), "then return 0, resume_at end", "then end"),
    "an open circuit is ignored": Mistake(("claim",), "has_blocks = next(blocks) ~= nil", "has_blocks = false"),
    "a circuit never closes": Mistake(("complete",), "return not is_passed and", "return true and"),
    "a trial has no end": Mistake(("claim",), " - count_held(blocked_worker, scope)", ""),
    "a broken type holds back the others": Mistake(
        ("claim",), "local block = blocks[lane_type(lane)]", "local _, block = next(blocks)"
    ),
    "trials are of any type": Mistake(("claim",), "lane_type(tasks[task_id].lane) == scope", "true"),
    "a rate limit is held against the worker": Mistake(("fail",), "if blames == '1' then", "if true then"),
    "good outcomes do not count": Mistake(("complete",), "    count_outcome(worker_id, task.lane, 'good', 1)\n", ""),
    "a timeout is nobody's fault": Mistake(RECOVERING, "  count_outcome(task.worker, task.lane, 'bad', 1)\n", ""),
    "old outcomes count for ever": Mistake(("fail",), "if step * width > now - circuit_window_ms then", "if true then"),
    "an idle dead worker ends the sweep": Mistake(("sweep",), "#ids == left and 1 or 0", "0"),
    "a dead worker's task is recovered twice": Mistake(
        RECOVERING, "  update_circuits()\n  flush()\n", "  update_circuits()\n"
    ),
    "a worker that came back is forgotten": Mistake(
        ("register",), "redis.call('ZREM', dead_workers_key, worker_id)\n", ""
    ),
    "a purge frees the key of a later task": Mistake(("purge",), "'^%S+') == task_id then", "'^%S+') then"),
    "a task retried in time is forgotten": Mistake(
        ("sweep",), "if task and ENDED[task.state] and task.version == versions[i] then", "if task then"
    ),
    "a key is used twice": Mistake(("submit",), "if differs then return", "if false then return"),
}


def planted(mistake: Mistake) -> Callable[[str], ScriptSource]:
    """An `assemble` with this mistake in it."""
    changed = {name: _changed(assemble(name), mistake) for name in mistake.found_in}
    return lambda name: changed.get(name) or assemble(name)


def _changed(source: ScriptSource, mistake: Mistake) -> ScriptSource:
    if mistake.right not in source.text:
        pytest.fail(f"{source.name}.lua no longer says {mistake.right!r}: plant this mistake anew")
    return source._replace(text=source.text.replace(mistake.right, mistake.wrong))


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_short_search_finds_a_planted_mistake(
    mistake: Mistake, bench: Bench, report: list[str], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "assemble", planted(mistake))

    with pytest.raises(AssertionError) as caught:
        drive(bench, SHORT_SEARCH, seed_number=1)

    evidence = str(caught.value).splitlines()[0]
    report.append(f"{request.node.callspec.id}: caught in run {bench.run_count}, {evidence[:120]}")
