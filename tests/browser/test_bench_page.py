"""The page that `tideq bench --html` writes, opened from a file as people do."""

from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser

from tests.browser.eyes import Eyes
from tideq.cli.benchmark.findings import Figure, Machine, Run, times
from tideq.cli.benchmark.page import page
from tideq.cli.benchmark.plan import Plan

PLAN = Plan(
    kinds=("enqueue", "process", "latency", "depth"),
    tasks=10_000,
    connections=16,
    batch=500,
    clients=1,
    workers=1,
    payload_bytes=100,
    rate=200,
    seconds=5,
    depths=(1_000, 1_000_000),
    payloads=(100,),
    worker_counts=(1, 2),
)


def figure(name: str, per_second: float | None = None, x: float | None = None) -> Figure:
    group = name.partition(".")[0]
    spent = None if per_second else times([3.0, 4.0, 5.0, 40.0])
    return Figure(
        name=name, title=f"title of {name}", group=group, series=name, x=x, tasks=9, seconds=1.0, times=spent,
        per_second=per_second,
    )  # fmt: skip


RUN = Run(
    at="2026-11-16T15:00:00+00:00",
    tideq="1.0",
    url="http://127.0.0.1:8080/<script>alert(1)</script>",
    machine=Machine(cpus=2, system="Linux", python="3.11"),
    plan=PLAN,
    figures=(
        figure("enqueue.single", 1_200.0),
        figure("enqueue.batch", 14_000.0),
        figure("process", 4_100.0),
        figure("latency.pickup"),
        figure("depth.process.1000", 4_000.0, 1_000),
        figure("depth.process.1000000", 3_800.0, 1_000_000),
        figure("payload.enqueue.100", 900.0, 100),
        figure("workers.1", 4_100.0, 1),
        figure("workers.2", 7_900.0, 2),
    ),
    submitted=9,
    processed=9,
    left=0,
    notes=("service, load & workers share this machine",),
)
BEFORE = msgspec.structs.replace(RUN, at="2026-11-15T15:00:00+00:00")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_opens_without_a_complaint_and_can_be_read(browser: Browser, tmp_path: Path, scheme: str) -> None:
    (tmp_path / "run.html").write_text(page(RUN, BEFORE))
    context = await browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
    eyes = Eyes(await context.new_page(), tmp_path.as_uri())
    requests: list[str] = []
    eyes.page.on("request", lambda request: requests.append(request.url))

    await eyes.open("/run.html")
    await eyes.see("How much this service does")
    await eyes.screenshot(f"bench-{scheme}")
    problems = await eyes.serious_problems()
    charts = [await chart.bounding_box() for chart in await eyes.page.locator(".card svg").all()]
    is_wider = await eyes.page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    await context.close()

    assert (eyes.unexpected, problems, is_wider) == ([], [], False)
    assert {url for url in requests if not url.startswith("data:")} == {f"{tmp_path.as_uri()}/run.html"}
    assert len(charts) == 5
    assert all(box is not None and box["width"] > 300 and box["height"] > 150 for box in charts)
