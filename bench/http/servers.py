"""The same applications on different ASGI servers: what docs/http-server.md compares.

Each server runs the echo and the service, one after the other in every round. Install the others to see them
(`pip install granian hypercorn`); none is a dependency.
"""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial

from bench.figures import Figure, Findings, Plan, Table, figure, take_turns
from bench.http.alternatives import installed
from bench.http.jobs import Lives
from bench.http.processes import ServerProcess, alternative
from bench.http.rates import BATCH, LIFE_BATCH, SUBMIT, Round, measured, repeat
from bench.server import BenchServer, Servers

KINDS = ("echo", "submit 1", "submit 100", "life")


async def measure(servers: Servers, plan: Plan) -> Findings:
    with ExitStack() as running:
        variants: dict[str, Callable[[], Awaitable[Round]]] = {}
        for name in installed():
            store = running.enter_context(servers.start())
            empty = running.enter_context(alternative(name, "echo", store.url))
            service = running.enter_context(alternative(name, "service", store.url))
            variants |= {f"{name} {kind}": load for kind, load in _loads(store, empty, service, plan).items()}
        for warm_up in variants.values():
            await warm_up()
        samples = await take_turns(plan.rounds, variants)
    return Findings((_cpu_table(samples), _rate_table(samples)))


def _loads(
    store: BenchServer, empty: ServerProcess, service: ServerProcess, plan: Plan
) -> dict[str, Callable[[], Awaitable[Round]]]:
    loads = (
        partial(measured, store, empty, 1, repeat(empty, "/echo", 0, plan.http_requests)),
        partial(measured, store, service, 1, repeat(service, SUBMIT, 1, plan.http_requests)),
        partial(measured, store, service, 100, repeat(service, BATCH, 100, plan.http_tasks // 100)),
        partial(measured, store, service, LIFE_BATCH, Lives(service.port, plan.http_tasks // LIFE_BATCH)),
    )
    return dict(zip(KINDS, loads, strict=True))


def _cpu_table(samples: dict[str, list[Round]]) -> Table:
    rows = tuple((name, *_figures(samples, name, lambda each: each.api_us)) for name in installed())
    return Table("ASGI servers: CPU of the whole process, µs an echo or task", ("server", *KINDS), rows)


def _rate_table(samples: dict[str, list[Round]]) -> Table:
    rows = tuple((name, *_figures(samples, name, lambda each: each.items_per_second)) for name in installed())
    return Table("ASGI servers: echoes or tasks a second", ("server", *KINDS), rows)


def _figures(samples: dict[str, list[Round]], name: str, value: Callable[[Round], float]) -> list[Figure]:
    return [figure([value(each) for each in samples[f"{name} {kind}"]]) for kind in KINDS]
