"""Whatever is sent, the service answers as its document says."""

import pytest

from tests.fuzz.findings import Findings
from tests.fuzz.plan import MIN_CASES, STATEFUL_CALLS

MIN_SUCCESSES = 5


def test_nothing_is_found(findings: Findings) -> None:
    assert not findings.failures, f"{len(findings.failures)} findings\n" + "\n".join(findings.failures[:20])


def test_every_operation_got_its_cases(findings: Findings, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{findings.table()}")  # noqa: T201

    assert {name: count for name, count in findings.cases.items() if count < MIN_CASES} == {}
    assert set(findings.phases) == {"examples", "coverage", "fuzzing", "stateful"}
    assert findings.phases["stateful"] >= STATEFUL_CALLS


def test_every_operation_was_also_answered_with_success(findings: Findings) -> None:
    """Otherwise a campaign would only show how well nonsense is refused."""
    successes = {name: findings.statuses[name][200] + findings.statuses[name][201] for name in findings.cases}

    assert {name: count for name, count in successes.items() if count < MIN_SUCCESSES} == {}


def test_the_service_outlived_it_without_a_word(findings: Findings) -> None:
    assert findings.is_alive
    assert "Traceback" not in findings.complaints
    assert "request failed" not in findings.complaints
