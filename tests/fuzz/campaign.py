"""A campaign: schemathesis reads the service's own document and tries all it can think of, four phases long."""

import itertools
import string
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import httpx
import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, HookContext, Response, engine

from tests.fuzz.exemptions import is_a_finding
from tests.fuzz.findings import Findings
from tests.fuzz.graveyard import what_is_left
from tests.fuzz.lending import Lender
from tests.fuzz.plan import AT_RANDOM, BY_RULE, IN_SEQUENCE, MAX_ROUNDS, SEED, STATEFUL_CALLS, Phases, plan
from tests.fuzz.taming import Tamed

untyped = cast("Any", schemathesis)
"""Its functions say little of what they take and give."""
INSTANTS = st.datetimes(datetime(1970, 1, 2), datetime(2060, 1, 1), timezones=st.just(UTC)).map(datetime.isoformat)
"""Within what the document's words allow: a schema has none for it."""


def run_campaign(url: str, key: str) -> Findings:
    findings = Findings()
    schemathesis.openapi.format("date-time", INSTANTS)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as client, _hooks(client, findings):
        document = client.get("/openapi.json").json()
        findings.cases.update(
            {f"{verb.upper()} {path}": 0 for path, verbs in document["paths"].items() for verb in verbs}
        )

        def run(seed: int, phases: Phases) -> None:
            config = plan(url, key, seed, phases, findings.cases)
            for event in engine.from_schema(schemathesis.openapi.from_dict(document, config=config)).execute():
                findings.take(event)

        run(SEED, BY_RULE)
        run(SEED, AT_RANDOM)
        for round_number in range(1, MAX_ROUNDS + 1):
            if findings.phases["stateful"] < STATEFUL_CALLS:
                run(SEED + round_number, IN_SEQUENCE)
    return findings


@contextmanager
def _hooks(client: httpx.Client, findings: Findings) -> Generator[None]:
    """Schemathesis keeps hooks for the whole process: ours are there for the campaign only."""
    lender, numbers = Lender(client), itertools.count()

    def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
        lender.bring_work(case)
        kwargs["auth"] = Tamed(numbers, lender.lend(case))

    def after_call(context: HookContext, case: Case[Any], response: Response) -> None:
        findings.failures += what_is_left(client, case.operation.label, response)

    hooks = {
        "before_call": before_call,
        "after_call": after_call,
        "before_generate_case": _vary,
        "filter_failure": is_a_finding,
    }
    for name, function in hooks.items():
        untyped.hook(name)(function)
    try:
        yield
    finally:
        for function in hooks.values():
            untyped.hooks.GLOBAL_HOOK_DISPATCHER.unregister(function)


def _vary(context: HookContext, strategy: st.SearchStrategy[Case[Any]]) -> st.SearchStrategy[Case[Any]]:
    """A call without a body has little to vary: it gets headers nobody knows, which must not matter."""
    operation = cast("Any", context).operation
    if operation is None or operation.method.upper() not in ("GET", "DELETE"):
        return strategy
    names = st.text("abcdefgh", min_size=1, max_size=8).map("X-{}".format)
    texts = st.text(string.ascii_letters + string.digits, max_size=10)
    return st.builds(_with_headers, strategy, st.dictionaries(names, texts, max_size=3))


def _with_headers(case: Case[Any], unknown: dict[str, str]) -> Case[Any]:
    cast("Any", case).headers.update(unknown)
    return case
