"""What alerts, dashboard and documents ask for is what a real /metrics tells."""

import re
import shlex
from typing import Any

import msgspec

from tests.api.bench import until
from tests.observability.conftest import Whole
from tests.observability.dashboard import expressions
from tests.observability.promtool import ROOT, needs_promtool, promtool
from tests.observability.rules import all_rules, metrics_in
from tests.observability.scrape import PATH, Scrape, scrape
from tideq.api.settings import CLIENT_SETTINGS, SERVICE_SETTINGS
from tideq.cli.commands import app
from tideq.persistence.settings import HISTORY_SETTINGS
from tideq.queue_core.samples import Counters, decode, encode
from tideq.queue_core.settings import QUEUE_SETTINGS
from tideq.queue_core.telemetry.metrics import METRICS

DOCUMENTS = ("docs/runbook.md", "docs/observability.md")


async def test_a_real_scrape_tells_every_metric_that_anyone_asks_for(whole: Whole) -> None:
    told = await _after_a_busy_minute(whole)

    shown = told.names | {name.removesuffix("_bucket") for name in told.names}
    assert set(METRICS) - shown == set()
    for rule in all_rules():
        assert metrics_in(rule.expr) <= told.names, rule.alert
    for title, expression in expressions():
        assert metrics_in(expression) <= told.names, title
    for document in DOCUMENTS:
        asked = set(re.findall(r"`(tideq_\w+)", (ROOT / document).read_text()))
        assert asked <= shown, document


@needs_promtool
async def test_what_is_told_passes_prometheus_own_check(whole: Whole) -> None:
    await _after_a_busy_minute(whole)

    text = (await whole.http.get(PATH)).content
    checked = promtool("check", "metrics", told=text)

    assert checked.returncode == 0, checked.stderr.decode()


async def _after_a_busy_minute(whole: Whole) -> Scrape:
    """One task that fails once and then succeeds, one that dies, a type that always fails, and a worker that no probe
    reaches."""
    kit, bench = whole.kit, whole.bench
    await kit.worker()
    await kit.worker("w2", host="127.0.0.1", health_port=1)
    await bench.submit("dies")
    await kit.fail(await kit.started(), verdict="discard")
    for _ in range(5):
        await bench.submit("breaks", max_retries=0)
        await kit.fail(await kit.started())
    await bench.submit("recovers")
    await kit.fail(await kit.started())
    await bench.submit("waits", delay_seconds=3_600)
    await bench.http.get("/api/v1/tasks/nobody-knows")
    await kit.controls.pause("other-things")

    async def is_back() -> bool:
        return bool(await _claim(whole))

    await until(is_back)
    seen: list[Scrape] = []

    async def is_told() -> bool:
        seen.append(await scrape(whole.http))
        probes = seen[-1].values("tideq_worker_probes_total", "outcome")
        ended = seen[-1].values("tideq_task_duration_seconds_count", "state")
        is_replicated = seen[-1].value("tideq_history_lag_seconds") == 0
        return {"completed", "dead_letter"} <= set(ended) and probes["failed"] > 0 and is_replicated

    await until(is_told)
    return seen[-1]


async def _claim(whole: Whole) -> Any:
    """Once the backoff is over."""
    claim = await whole.kit.queue.claim("w1", 1)
    for task in claim.tasks:
        await whole.kit.start(task)
        await whole.kit.complete(task)
    return claim.tasks


def test_the_documents_name_real_settings() -> None:
    known = {*CLIENT_SETTINGS, *SERVICE_SETTINGS, *HISTORY_SETTINGS, *QUEUE_SETTINGS}
    for document in DOCUMENTS:
        assert set(re.findall(r"\bTIDEQ_\w+", (ROOT / document).read_text())) <= known, document


def test_the_documents_name_real_commands() -> None:
    for document in DOCUMENTS:
        for command in re.findall(r"`tideq ([^`]+)`", (ROOT / document).read_text()):
            app.parse_args(shlex.split(command), exit_on_error=False, print_error=False)


def test_every_metric_is_documented() -> None:
    """The table in docs/observability.md says of each what METRICS says."""
    rows = dict(re.findall(r"^\| `(tideq_\w+)` \| (.+) \|$", (ROOT / DOCUMENTS[1]).read_text(), re.MULTILINE))

    assert rows == {name: _row(name) for name in METRICS}


def _row(name: str) -> str:
    metric = METRICS[name]
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"{metric.kind.replace('_', ' ')} | {labels} | {metric.meaning}"


def test_readings_survive_the_way_between_processes() -> None:
    counters = Counters()
    counters.add("tideq_worker_probes_total", "failed")
    counters.histogram("tideq_claim_duration_seconds", (), (0.1, 1.0)).note(0.5)
    told = counters.samples("7")

    again = decode(encode(told))

    assert again["tideq_worker_probes_total"] == told["tideq_worker_probes_total"]
    assert msgspec.json.decode(encode(again)) == msgspec.json.decode(encode(told))
