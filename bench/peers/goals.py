"""The goals of the comparison with the peers, and whether a run reached them."""

from typing import NamedTuple

from bench.figures import Figure
from bench.peers.catalogue import FLOOR, LEAN, OURS, PEERS
from bench.peers.run import Run

PYTHON = tuple(peer.name for peer in PEERS if peer.ecosystem == "python" and peer.name != FLOOR)
OTHERS = tuple(peer.name for peer in PEERS if peer.ecosystem != "ours" and peer.name != FLOOR)
BATCHED = ("graphile-worker", "pg-boss")
HTTP_TWICE_MS = 2.0


class Goal(NamedTuple):
    name: str
    wanted: str
    measured: str
    is_reached: bool
    is_aim: bool = False
    """An aim may be missed, other goals must hold."""

    @property
    def verdict(self) -> str:
        return "reached" if self.is_reached else "missed, an aim" if self.is_aim else "missed"


def goals(run: Run) -> list[Goal]:
    """The goals for which the run has figures."""
    found = [
        _against(run, "processed/s against the best Python library", "processed", PYTHON, 3.0),
        _against(run, "processed/s against BullMQ", "processed", ("BullMQ",), 1.0),
        _against(run, "bulk enqueue against the best peer", "bulk", OTHERS, 1.0),
        _against(
            run, "single submits against BullMQ, each with its best number at once", "single_best", ("BullMQ",), 1.0
        ),
        _taken(run),
        _against(run, "single submits against BullMQ, 32 at once", "single_at_once", ("BullMQ",), 1.0),
        _against(run, "single submits against BullMQ, one after the other", "single", ("BullMQ",), 1.0),
        _against(run, "… by the lean client", "single", ("BullMQ",), 1.0, ours=LEAN),
        _pickup(run),
        _against(run, "processed/s against graphile-worker", "processed", BATCHED[:1], 1.0, is_aim=True),
        _against(run, "processed/s against pg-boss", "processed", BATCHED[1:], 1.0, is_aim=True),
    ]
    return [goal for goal in found if goal is not None]


def best_of(run: Run, names: tuple[str, ...], field: str) -> str | None:
    """The name with the highest median."""
    medians = {name: median for name in names if (median := run.median(name, field)) is not None}
    return max(medians, key=lambda name: medians[name]) if medians else None


def _against(
    run: Run, name: str, field: str, names: tuple[str, ...], wanted: float, *, ours: str = OURS, is_aim: bool = False
) -> Goal | None:
    best = best_of(run, names, field)
    ratio = run.ratio(ours, best, field) if best else None
    if ratio is None:
        return None
    full_name = f"{name} ({best})" if len(names) > 1 else name
    return Goal(full_name, f"{wanted:g} ×", f"{_text(ratio)} ×", ratio.median >= wanted, is_aim)


def _taken(run: Run) -> Goal | None:
    """Compares the service with 32 callers to a library with one: a library has no process beside its caller."""
    ratio = run.ratio(LEAN, "BullMQ", "single_at_once", base_field="single")
    if ratio is None:
        return None
    name = "single submits against BullMQ, requests of 32 connections against its calls one after the other"
    return Goal(name, "1 ×", f"{_text(ratio)} ×", ratio.median >= 1)


def _pickup(run: Run) -> Goal | None:
    medians = {name: median for name in OTHERS if (median := run.median(name, "p50_ms")) is not None}
    ours = run.figure(OURS, "p50_ms")
    if not medians or ours is None:
        return None
    best = min(medians, key=lambda name: medians[name])
    wanted = medians[best] + HTTP_TWICE_MS
    name = f"pickup p50 at 200 tasks/s against the best peer's + 2 ms ({best})"
    return Goal(name, f"at most {wanted:.1f} ms", f"{_text(ours)} ms", ours.median <= wanted)


def _text(figure: Figure) -> str:
    return str(figure).replace("_", " ").replace("%", " %")
