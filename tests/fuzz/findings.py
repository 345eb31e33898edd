"""What a campaign brought to light, gathered from what schemathesis reports as it goes."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from schemathesis.engine import events


@dataclass
class Findings:
    cases: Counter[str] = field(default_factory=Counter[str])
    """By operation; all the document has are in it."""
    phases: Counter[str] = field(default_factory=Counter[str])
    statuses: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter[int]))
    failures: list[str] = field(default_factory=list[str])
    exempted: int = 0
    complaints: str = ""
    """What the service said meanwhile."""
    is_alive: bool = True

    def table(self) -> str:
        rows = [f"{count:6d}  {name:45s} {_counts(self.statuses[name])}" for name, count in sorted(self.cases.items())]
        phases = ", ".join(f"{name} {count}" for name, count in self.phases.items())
        return "\n".join([*rows, f"{self.cases.total():6d}  in all: {phases}; {self.exempted} let pass"])

    def take(self, event: events.EngineEvent) -> None:
        if isinstance(event, events.NonFatalError):
            self.failures.append(f"{event.label}: {event.info.format()}")
        elif isinstance(event, events.FatalError):
            raise event.exception
        elif isinstance(event, events.ScenarioFinished):
            self.exempted += sum(event.recorder.filtered_failures.values())
            for case_id, node in event.recorder.cases.items():
                self._take_case(event, case_id, cast("Any", node).value.operation.label)

    def _take_case(self, event: events.ScenarioFinished, case_id: str, name: str) -> None:
        self.cases[name] += 1
        self.phases[event.phase.value] += 1
        interaction = event.recorder.interactions.get(case_id)
        if interaction is not None and interaction.response is not None:
            self.statuses[name][interaction.response.status_code] += 1
        self.failures += _failures(event, case_id)


def _failures(event: events.ScenarioFinished, case_id: str) -> Iterator[str]:
    for check in event.recorder.checks.get(case_id, ()):
        if check.failure_info is not None:
            failure, interaction = check.failure_info.failure, event.recorder.interactions[case_id]
            request, response = interaction.request, interaction.response
            answered = f"{response.status_code} {(response.content or b'')[:300]!r}" if response else "nothing"
            yield (
                f"{event.phase.value}: {request.method} {request.uri[:200]} {(request.body or b'')[:300]!r}\n"
                f"  → {answered}\n  {check.name}: {failure.title} {failure.message[:300]}"
            )


def _counts(statuses: Counter[int]) -> str:
    return " ".join(f"{status}×{count}" for status, count in sorted(statuses.items()))
