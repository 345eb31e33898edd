"""Measures latency: of requests at half of the highest load, and of delivery to a waiting worker."""

import statistics
from collections.abc import Awaitable, Callable
from functools import partial

from bench.figures import Figure, Findings, Plan, Table, Target, figure, take_turns
from bench.http.jobs import Deliveries, Lives
from bench.http.processes import Load, ServerProcess, load
from bench.http.rates import LIFE_BATCH

MAX_DELIVERY_MS = 5.0
BYSTANDERS = (0, 100)
KINDS = ("submit", "results and claim", "starts")


async def measure(service: ServerProcess, plan: Plan, lives_per_second: float) -> Findings:
    samples = await take_turns(plan.rounds, _variants(service, plan, lives_per_second))
    half = [(kind, *_percentiles(samples["half load"], kind)) for kind in KINDS]
    waits = [(f"beside {count} workers of another type", *_delivery(samples, count)) for count in BYSTANDERS]
    columns = ("ms", "p50", "p99")
    title = f"Requests of 100 tasks at half load, {lives_per_second / 2:_.0f} lives a second: milliseconds"
    note = "A submission is measured from the time it was due."
    tables = (
        Table(title, columns, tuple(half), note),
        Table("From submission to a waiting worker, over HTTP: milliseconds", columns, tuple(waits)),
    )
    return Findings(tables, (Target("submission to delivery, median", MAX_DELIVERY_MS, waits[0][1].median, "ms"),))


def _variants(service: ServerProcess, plan: Plan, lives_per_second: float) -> dict[str, Callable[[], Awaitable[Load]]]:
    paced = Lives(service.port, plan.http_tasks // LIFE_BATCH, rounds_per_second=lives_per_second / LIFE_BATCH / 2)
    waits = {f"{count}": Deliveries(service.port, plan.http_deliveries, count) for count in BYSTANDERS}
    return {"half load": partial(load, paced), **{name: partial(load, job) for name, job in waits.items()}}


def _delivery(samples: dict[str, list[Load]], bystanders: int) -> tuple[Figure, Figure]:
    return _percentiles(samples[f"{bystanders}"], "delivery")


def _percentiles(rounds: list[Load], kind: str) -> tuple[Figure, Figure]:
    cuts = [statistics.quantiles(each.milliseconds[kind], n=100) for each in rounds]
    return figure([cut[49] for cut in cuts]), figure([cut[98] for cut in cuts])
