"""C1 to C19: what must be true of a run, whatever went wrong in it. Independent of all it judges.

Every check is a function from the evidence to problems; a run is good when there are none.
"""

from collections.abc import Callable, Iterator

from tests.chaos import about_attempts, about_service, about_tasks
from tests.chaos.evidence import Evidence, StoreTime
from tests.chaos.lost import Losses

Check = Callable[[Evidence, StoreTime, Losses], Iterator[str]]
CHECKS: dict[str, Check] = {
    "C1 every accepted task comes to one end": about_tasks.ends,
    "C2 nothing runs that nobody handed in": about_tasks.unheard,
    "C3 one task a key": about_tasks.keys,
    "C4 one accepted result a task": about_attempts.results,
    "C5 no word of an old attempt is accepted": about_attempts.fencing,
    "C6 no lease ends early": about_attempts.leases,
    "C7 counters are what happened": about_attempts.counters,
    "C8 events are a path without a gap": about_tasks.paths,
    "C9 history and store agree": about_tasks.agreement,
    "C10 an accepted task can be read": about_tasks.reads,
    "C11 best first": about_service.order,
    "C12 nothing starts early": about_service.early,
    "C12 a dead worker's tasks come back": about_service.late,
    "C13 refusals say when to come back": about_service.refusals,
    "C14 figures are what happened": about_service.figures,
    "C15 the store is sound at every look": about_service.soundness,
    "C16 nobody idles while work waits": about_service.idleness,
    "C17 everything comes back to where it was": about_service.leaks,
    "C18 nobody ends by himself": about_service.survival,
    "C19 the store's time is its clock's": about_service.instants,
    "the run itself shows something": about_service.worth,
}
SHOWN = 8


def problems_of(evidence: Evidence) -> dict[str, list[str]]:
    """By check, with only what failed."""
    time = StoreTime(evidence.of("clock"))
    losses = Losses(evidence, time)
    found = {name: list(check(evidence, time, losses)) for name, check in CHECKS.items()}
    return {name: problems for name, problems in found.items() if problems}


def told(problems: dict[str, list[str]]) -> str:
    lines: list[str] = []
    for name, found in problems.items():
        lines += [f"{name}: {len(found)} problems", *(f"    {problem}" for problem in found[:SHOWN])]
    return "\n".join(lines)
