"""The checker itself: a run it must find good, and one history for every check that it must not."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.checker import CHECKS, problems_of
from tests.chaos.evidence import UNCOUNTED_MS, Event, Evidence, Row, Rules, StoreTime
from tests.chaos.lookout import Look

RULES = Rules(
    assignment_ms=2_000,
    heartbeat_ms=4_000,
    retry_base_ms=200,
    max_losses=2,
    max_deliveries=3,
    timeouts_ms={"hand": 5_000, "work": 20_000},
    offsets_ms={"high": 0, "medium": 100_000},
)
BEGAN = 1_700_000_000_000
ENDED = {"hand completed": 1, "work completed": 1}
STATS: dict[str, Any] = {"by_state": {"queued": 0}, "dead_letters": 0, "ended": ENDED}
DONE = (("queued", "submitted"), ("assigned", "claimed"), ("executing", "started"), ("completed", "succeeded"))


def story(task_id: str, steps: Any, at: int = BEGAN, every_ms: int = 10, worker: str = "h") -> list[Event]:
    events: list[Event] = []
    for number, (state, reason) in enumerate(steps, 1):
        attempt = sum(each.state == "executing" for each in events) + (state in ("assigned", "executing"))
        events.append(Event(task_id, 1, number, at + number * every_ms, state, reason, attempt, worker))
    return events


def row(state: str, version: int, mark: str, result: Any = None, kind: str = "hand", **spent: int) -> Row:
    counted = tuple(spent.get(name, 0) for name in ("retries", "losses", "deliveries"))
    standing: Any = (state, version, spent.get("attempt", 1), *counted)
    return Row(state, version, kind, "high", mark, result, standing, spent.get("rank", BEGAN + 10))


def note(f: str, at: int = BEGAN, **facts: Any) -> dict[str, Any]:
    return {"f": f, "t0": at, "t1": at + 5, **facts}


def looked_at(*records: tuple[str, Any]) -> Look:
    look = Look([b"1", [], [], [], [], [], []])
    look.records.update(records)
    return look


def good() -> Evidence:
    """Two tasks, one done by a scripted worker and one by a real one; everything as it should be."""
    result, worked = {"n": 1}, {"mark": "b", "pid": 7, "attempt": 1}
    lease = {"task_id": "A", "lease": "1-x-1", "worker": "h", "attempt": 1, "type": "ok", "status": 200}
    visible_at = "2023-11-14T22:13:22.020+00:00"
    notes = [
        note("submit", marks=["a"], delays={}, key="a", type="ok", status=201),
        note("acknowledged", BEGAN + 20, marks=["a"], ids=["A"], durability="store"),
        note("submit", marks=["b"], delays={"b": 5}, type="ok", status=201),
        note("acknowledged", BEGAN + 20, marks=["b"], ids=["B"], durability="history"),
        note("submit", marks=["c"], delays={}, type="fail", status=503, retry_after="1"),
        note("poll", BEGAN + 10, worker="h", type="ok", status=200, tasks=[{**lease, "visible_at": visible_at}]),
        note("start", BEGAN + 25, said={}, **lease),
        note("result", BEGAN + 35, said={"status": "completed", "result": result}, **lease),
        note("read", BEGAN + 50, task_id="A", type="ok", status=200),
        note("last_read", BEGAN + 60, task_id="A", told=["completed", 4], type="ok", status=200),
        note("look", BEGAN + 60, live=0, ready=0, problems=[]),
    ]
    ledger = [
        {"event": event, "task_id": "B", "attempt": 1, "mark": "b", "pid": 7, "at": BEGAN} for event in ("start", "end")
    ]
    tasks = {"A": row("completed", 4, "a", result), "B": row("completed", 4, "b", worked, "work", rank=BEGAN + 25)}
    figures = {"connections": 10, "sessions": 5, "outbox": 0, "is_caught_up": True}
    return Evidence(
        RULES,
        notes,
        ledger,
        {"A": story("A", DONE), "B": story("B", DONE, every_ms=20, worker="w")},
        tasks,
        look=looked_at(("A", tasks["A"].standing)),
        ends={
            "before": figures,
            "after": figures,
            "stats": {"by_state": {"queued": 0}, "dead_letters": 0, "ended": ENDED},
        },
    )


def test_a_good_run_has_no_problems() -> None:
    assert problems_of(good()) == {}


def find(evidence: Evidence, f: str, **facts: Any) -> Any:
    return next(each for each in evidence.notes if each["f"] == f and facts.items() <= each.items())


def lose_a_task(evidence: Evidence) -> None:
    del evidence.tasks["A"], evidence.events["A"]


def leave_one_live(evidence: Evidence) -> None:
    evidence.tasks["A"] = row("queued", 4, "a")


def keep_a_refused_one(evidence: Evidence) -> None:
    evidence.tasks["C"] = row("completed", 4, "c", {})
    evidence.events["C"] = story("C", DONE)


def run_what_nobody_asked_for(evidence: Evidence) -> None:
    evidence.ledger = [*evidence.ledger, {**evidence.ledger[0], "mark": "z"}]


def make_two_of_a_key(evidence: Evidence) -> None:
    evidence.tasks["A2"] = evidence.tasks["A"]
    evidence.events["A2"] = story("A2", DONE)


def take_a_key_for_another_body(evidence: Evidence) -> None:
    evidence.notes = [*evidence.notes, note("submit_other", marks=["a"], key="a", type="ok", status=201)]


def accept_two_results(evidence: Evidence) -> None:
    other = {**find(evidence, "result"), "said": {"status": "completed", "result": {"n": 2}}}
    evidence.notes = [*evidence.notes, other]


def keep_a_result_nobody_worked_out(evidence: Evidence) -> None:
    evidence.tasks["B"] = row("completed", 4, "b", {"mark": "b", "pid": 8, "attempt": 1}, "work")


def believe_an_old_attempt(evidence: Evidence) -> None:
    """Claimed again by another, and the first is still listened to."""
    steps = (*DONE[:3], ("queued", "worker_lost"), ("assigned", "claimed"), ("executing", "started"), DONE[3])
    evidence.events["A"] = story("A", steps)
    evidence.tasks["A"] = row("completed", 7, "a", {"n": 1}, losses=1, attempt=2)
    find(evidence, "result")["t0"] = BEGAN + 5_000


def end_a_lease_early(evidence: Evidence) -> None:
    evidence.events["A"] = story("A", (*DONE[:2], ("queued", "assignment_lapsed"), *DONE[1:]))
    evidence.tasks["A"] = row("completed", 6, "a", {"n": 1}, deliveries=1)


def give_up_a_living_worker(evidence: Evidence) -> None:
    evidence.events["A"] = story("A", (*DONE[:3], ("queued", "worker_lost"), *DONE[1:]))
    evidence.tasks["A"] = row("completed", 7, "a", {"n": 1}, losses=1, attempt=2)


def miscount_a_retry(evidence: Evidence) -> None:
    evidence.tasks["A"] = row("completed", 4, "a", {"n": 1}, retries=1)


def go_past_a_cap(evidence: Evidence) -> None:
    lost = (*DONE[1:3], ("queued", "worker_lost"))
    evidence.events["A"] = story("A", (DONE[0], *lost, *lost, *DONE[1:]), every_ms=5_000)
    evidence.tasks["A"] = row("completed", 10, "a", {"n": 1}, losses=2, attempt=3)


def begin_without_a_start(evidence: Evidence) -> None:
    evidence.ledger = [*evidence.ledger, {**evidence.ledger[0], "attempt": 2}]


def leave_a_gap(evidence: Evidence) -> None:
    del evidence.events["A"][1]


def invent_an_epoch(evidence: Evidence) -> None:
    evidence.events["A"][-1] = evidence.events["A"][-1]._replace(epoch=2)


def disagree(evidence: Evidence) -> None:
    evidence.look = looked_at(("A", ("executing", 3, 1, 0, 0, 0)))


def forget_a_dead_letter(evidence: Evidence) -> None:
    evidence.dead = {"A"}


def read_nothing(evidence: Evidence) -> None:
    find(evidence, "read").update(status=404, type="fail")


def read_something_else(evidence: Evidence) -> None:
    find(evidence, "last_read").update(told=["executing", 3])


def claim_the_worse_one(evidence: Evidence) -> None:
    """D stood ready for a second when A, which came later, was claimed."""
    evidence.tasks["D"] = row("completed", 4, "a2", {"n": 1})
    evidence.notes = [*evidence.notes, note("submit", marks=["a2"], delays={}, type="ok", status=201)]
    evidence.events["D"] = story("D", DONE, at=BEGAN - 1_000, every_ms=1_000)
    evidence.events["D"][0] = evidence.events["D"][0]._replace(at=BEGAN - 1_000)


def change_a_rank(evidence: Evidence) -> None:
    evidence.tasks["A"] = evidence.tasks["A"]._replace(rank=BEGAN)


def start_early(evidence: Evidence) -> None:
    find(evidence, "submit", marks=["b"])["delays"] = {"b": 21}


def retry_early(evidence: Evidence) -> None:
    evidence.events["A"] = story("A", (*DONE[:3], ("queued", "error"), *DONE[1:]))
    evidence.tasks["A"] = row("completed", 7, "a", {"n": 1}, retries=1, attempt=2)


def bring_back_too_late(evidence: Evidence) -> None:
    """Its worker was killed, and nobody noticed before the execution's deadline."""
    steps = (*DONE[:3], ("queued", "timed_out"), *DONE[1:])
    events = story("A", steps, worker="worker-1-x")
    evidence.events["A"] = [event._replace(at=event.at + 30_000 * (event.version > 3)) for event in events]
    evidence.tasks["A"] = row("completed", 7, "a", {"n": 1}, retries=1, attempt=2)
    evidence.notes = [*evidence.notes, note("fault", BEGAN + 1_000, name="kill", target="worker-1")]


def refuse_without_a_word(evidence: Evidence) -> None:
    find(evidence, "submit", type="fail")["retry_after"] = None


def break_inside(evidence: Evidence) -> None:
    find(evidence, "read")["status"] = 500


def count_ends_wrongly(evidence: Evidence) -> None:
    evidence.ends["stats"] = {**STATS, "ended": {"hand completed": 2}}


def count_wrongly(evidence: Evidence) -> None:
    evidence.ends["stats"] = {**STATS, "by_state": {"queued": 1}}


def see_something_unsound(evidence: Evidence) -> None:
    find(evidence, "look")["problems"] = ["1 tasks live and not in the set"]


def idle_beside_work(evidence: Evidence) -> None:
    evidence.events["A"] = [event._replace(at=event.at + 5_000 * (event.version > 1)) for event in story("A", DONE)]
    poll = note("poll", BEGAN + 100, worker="h2", type="ok", status=200, tasks=[])
    evidence.notes = [*evidence.notes, {**poll, "t1": BEGAN + 2_200}]


def leak_connections(evidence: Evidence) -> None:
    evidence.ends["after"] = {**evidence.ends["after"], "connections": 40}


def never_catch_up(evidence: Evidence) -> None:
    evidence.ends["after"] = {**evidence.ends["after"], "is_caught_up": False}


def end_by_itself(evidence: Evidence) -> None:
    evidence.notes = [*evidence.notes, {"f": "ended", "t1": BEGAN, "name": "api-1", "pid": 8, "code": 5}]


def be_ahead_of_time(evidence: Evidence) -> None:
    for note in evidence.of("acknowledged"):
        note["t1"] -= 100


def know_nothing(evidence: Evidence) -> None:
    evidence.notes = [*evidence.notes, *(note("read", task_id="A", type="info", status=0) for _ in range(20))]


BROKEN: dict[str, tuple[Callable[[Evidence], None], ...]] = {
    "C1": (lose_a_task, leave_one_live),
    "C2": (keep_a_refused_one, run_what_nobody_asked_for),
    "C3": (make_two_of_a_key, take_a_key_for_another_body),
    "C4": (accept_two_results, keep_a_result_nobody_worked_out),
    "C5": (believe_an_old_attempt,),
    "C6": (end_a_lease_early, give_up_a_living_worker),
    "C7": (miscount_a_retry, go_past_a_cap, begin_without_a_start),
    "C8": (leave_a_gap, invent_an_epoch),
    "C9": (disagree, forget_a_dead_letter),
    "C10": (read_nothing, read_something_else),
    "C11": (claim_the_worse_one, change_a_rank),
    "C12": (start_early, retry_early, bring_back_too_late),
    "C13": (refuse_without_a_word, break_inside),
    "C14": (count_wrongly, count_ends_wrongly),
    "C15": (see_something_unsound,),
    "C16": (idle_beside_work,),
    "C17": (leak_connections, never_catch_up),
    "C18": (end_by_itself,),
    "C19": (be_ahead_of_time,),
    "the": (know_nothing,),
}
CASES = [(check, each) for check, several in BROKEN.items() for each in several]


@pytest.mark.parametrize(("check", "spoil"), CASES, ids=[f"{check} {each.__name__}" for check, each in CASES])
def test_a_broken_history_is_found(check: str, spoil: Callable[[Evidence], None]) -> None:
    evidence = copy.deepcopy(good())

    spoil(evidence)

    assert check in {name.split()[0] for name in problems_of(evidence)}


def test_every_check_has_a_history_that_it_must_find() -> None:
    assert {name.split()[0] for name in CHECKS} == BROKEN.keys()


def test_a_wipe_excuses_only_what_history_had_not_heard_of() -> None:
    evidence = good()
    lose_a_task(evidence)
    evidence.notes = [*evidence.notes, {"f": "wiped", "epoch": 1, "t1": BEGAN + 90}]
    told_early, told_late = BEGAN - 1_000, BEGAN + 75

    find(evidence, "acknowledged", ids=["A"]).update(t0=told_early, t1=told_early)
    assert "C1" in {name.split()[0] for name in problems_of(evidence)}
    find(evidence, "acknowledged", ids=["A"]).update(t0=told_late, t1=told_late)
    assert "C1" not in {name.split()[0] for name in problems_of(evidence)}
    find(evidence, "acknowledged", ids=["A"])["durability"] = "history"
    assert "C1" in {name.split()[0] for name in problems_of(evidence)}


def test_what_the_next_epoch_did_excuses_no_more_and_no_less() -> None:
    """Events of the epoch after a wipe are later, whatever their instants are beside the wipe's."""
    evidence = good()
    lose_a_task(evidence)
    evidence.notes = [*evidence.notes, {"f": "wiped", "epoch": 1, "t1": BEGAN + 90}]
    find(evidence, "acknowledged", ids=["A"]).update(t0=BEGAN + 10, t1=BEGAN + 15)
    evidence.events["B"] = [each._replace(epoch=2) for each in evidence.events["B"]]

    assert "C1" not in {name.split()[0] for name in problems_of(evidence)}


def test_a_kill_of_the_store_excuses_no_loss() -> None:
    evidence = good()
    lose_a_task(evidence)
    kill = {"f": "fault", "name": "killed_while_slow", "target": "", "t0": BEGAN + 20, "t1": BEGAN + 30}
    evidence.notes = [*evidence.notes, kill]

    assert "C1" in {name.split()[0] for name in problems_of(evidence)}


def test_the_stores_clock_jumps_and_its_time_goes_on_more_slowly_after_a_step_back() -> None:
    time = StoreTime([{"t0": 100, "t1": 110, "ahead_ms": 9_000}, {"t0": 200, "t1": 210, "ahead_ms": 4_000}])

    assert (time.earliest(50), time.latest(50)) == (50, 50)
    assert (time.earliest(105), time.latest(105)) == (105, 9_105)
    assert time.earliest(150) == time.latest(150) == 9_150
    assert time.latest(1_210) == 10_210
    assert time.earliest(1_210) == 10_210 - 101 - UNCOUNTED_MS  # a tenth of what passed since
    assert time.latest(90_000) == 99_000
    assert time.earliest(90_000) == 94_000 - UNCOUNTED_MS  # the clock has caught up
