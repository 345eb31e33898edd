"""What figures mean and what holds them down, in sentences."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from tideq.cli.benchmark.findings import Figure, Run

BUSY = 0.85
"""A process that needs so much of a core can hardly do more."""
NEAR = ("127.0.0.1", "localhost", "::1")


def number(value: float) -> str:
    """Three figures are as many as a run is good for."""
    if value >= 1_000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def bytes_in_words(count: float) -> str:
    return f"{count / 1_000:g} kB" if count >= 1_000 else f"{count:g} B"


def meaning(run: Run) -> list[str]:
    figures = {figure.name: figure for figure in run.figures}
    return [*_throughput(figures, run), *_latency(figures, run), *_depth(run), *_totals(run)]


def limits_found(figures: Sequence[Figure], url: str) -> list[str]:
    """What a reader must know before believing a figure."""
    found = list[str]()
    if urlsplit(url).hostname in NEAR:
        found.append("service, load and workers share this machine: each has less of it than it would have alone")
    if _most(figures, "load_cpu_share") > BUSY:
        found.append("a process that submits had no more time to spare: --clients 2 may get more out of the service")
    if _most(figures, "worker_cpu_share") > BUSY:
        found.append("a worker process had no more time to spare: more of them (--workers) may do more")
    if _most_service(figures) > BUSY:
        found.append("the service kept a core busy: `tideq serve --processes N` uses more of them")
    return found


def _throughput(figures: dict[str, Figure], run: Run) -> list[str]:
    found = list[str]()
    single, many, done = (figures.get(name) for name in ("enqueue.single", "enqueue.batch", "process"))
    if single and many and single.per_second and many.per_second:
        found.append(
            f"Producers can hand in about {number(single.per_second)} tasks a second one by one, "
            f"{number(many.per_second)} in batches of {run.plan.batch}."
        )
    if done and done.per_second:
        who = "One worker process does" if run.plan.workers == 1 else f"{run.plan.workers} worker processes do"
        found.append(f"{who} about {number(done.per_second)} tasks a second that take no time themselves.")
    return found


def _latency(figures: dict[str, Figure], run: Run) -> list[str]:
    pickup = figures.get("latency.pickup")
    if not pickup or not pickup.times:
        return []
    return [
        f"At {run.plan.rate:g} tasks a second half of them are in a handler after {number(pickup.times.p50)} ms, "
        f"99 of 100 after {number(pickup.times.p99)} ms."
    ]


def _depth(run: Run) -> list[str]:
    done = [figure for figure in run.figures if figure.name.startswith("depth.process.")]
    if len(done) < 2 or not done[0].per_second or not done[-1].per_second or not done[0].x or not done[-1].x:
        return []
    share = done[-1].per_second / done[0].per_second
    return [f"With {done[-1].x:,.0f} waiting, workers do {share:.2f} × what they do with {done[0].x:,.0f} waiting."]


def _totals(run: Run) -> list[str]:
    is_even = run.submitted == run.processed and not run.left
    ending = "every one of them was done." if is_even else f"{run.processed:,} were done and {run.left:,} are left."
    return [f"{run.submitted:,} tasks were handed in; {ending}"]


def _most(figures: Sequence[Figure], share: str) -> float:
    return max((getattr(figure, share) or 0.0 for figure in figures), default=0.0)


def _most_service(figures: Sequence[Figure]) -> float:
    """Of one core: what a task cost by how many there were in a second."""
    return max(((figure.service_cpu_us or 0) * (figure.per_second or 0) / 1e6 for figure in figures), default=0.0)
