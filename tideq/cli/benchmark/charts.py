"""Charts as inline SVG: no script, no request, colours from the page around them. Readable in light and in dark."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Literal, NamedTuple

WIDTH, HEIGHT = 560, 280
LEFT, RIGHT, TOP, BOTTOM = 62, 18, 30, 46
BAR_HEIGHT, BAR_GAP, BAR_LABEL = 36, 26, 22
STEPS = (1, 2, 2.5, 5, 10)
TICK_COUNT = 5

Scale = Literal["log", "linear", "even"]
Words = Callable[[float], str]


class Series(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    is_before: bool = False
    """Of the run that this one is compared with: drawn faintly."""


class Bar(NamedTuple):
    name: str
    value: float
    before: float | None = None


def line_chart(
    series: Sequence[Series], x_title: str, y_title: str, x_words: Words, y_words: Words, scale: Scale = "log"
) -> str:
    """Values against what was varied; the vertical axis begins at nothing."""
    drawn = [each for each in series if each.points]
    xs = sorted({x for each in drawn for x, _ in each.points})
    ticks = nice_ticks(max((y for each in drawn for _, y in each.points), default=1.0))
    place_x, top = _placing(xs, scale), ticks[-1]

    def place_y(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top

    parts = [_horizontal(place_y(tick), y_words(tick)) for tick in ticks]
    parts += [_under(place_x(x), x_words(x)) for x in xs]
    parts += [_line(each, place_x, place_y, x_words, y_words) for each in drawn]
    parts.append(f'<text class="axis" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}">{escape(x_title)}</text>')
    parts.append(f'<text class="axis start" x="8" y="12">{escape(y_title)}</text>')
    return _svg(HEIGHT, f"{y_title} by {x_title}", parts)


def bar_chart(bars: Sequence[Bar], title: str, words: Words) -> str:
    """Longest where most; the run before as an outline behind."""
    most = max((value for bar in bars for value in (bar.value, bar.before or 0)), default=1.0) or 1.0
    parts, y = list[str](), 4
    for bar in bars:
        parts.append(_bar(bar, y, (WIDTH - 90) / most, words))
        y += BAR_LABEL + BAR_HEIGHT + BAR_GAP
    return _svg(y - BAR_GAP + 8, title, parts)


def nice_ticks(most: float) -> list[float]:
    """Round numbers from 0 to the first that is not below the most."""
    rough = (most or 1.0) / (TICK_COUNT - 1)
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(each * magnitude for each in STEPS if each * magnitude >= rough * 0.999)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)] if most else [0.0, 1.0]


def _placing(xs: Sequence[float], scale: Scale) -> Callable[[float], float]:
    """Where a value stands on the horizontal axis; half a step of room at both ends."""
    positions = {x: math.log10(x) if scale == "log" else x if scale == "linear" else xs.index(x) for x in xs}
    first, last = min(positions.values(), default=0), max(positions.values(), default=0)
    room = (WIDTH - LEFT - RIGHT) * 0.06

    def place(x: float) -> float:
        share = (positions[x] - first) / (last - first) if last > first else 0.5
        return LEFT + room + (WIDTH - LEFT - RIGHT - 2 * room) * share

    return place


def _line(
    series: Series, place_x: Callable[[float], float], place_y: Callable[[float], float], x_words: Words, y_words: Words
) -> str:
    spots = [(place_x(x), place_y(y), x, y) for x, y in series.points]
    path = " ".join(f"{left:.1f},{top:.1f}" for left, top, _, _ in spots)
    dots = "".join(
        f'<circle cx="{left:.1f}" cy="{top:.1f}" r="4">'
        f"<title>{escape(f'{series.name}, {x_words(x)}: {y_words(y)}')}</title></circle>"
        for left, top, x, y in spots
    )
    kind = "before" if series.is_before else "now"
    return f'<g class="{kind} c{series.colour}"><polyline points="{path}"/>{dots}</g>'


def _bar(bar: Bar, y: float, factor: float, words: Words) -> str:
    width, top = max(bar.value * factor, 2), y + BAR_LABEL
    parts = [f'<text class="name" x="0" y="{y + 12}">{escape(bar.name)}</text>']
    if bar.before:
        parts.append(
            f'<rect class="was" x="0" y="{top}" width="{bar.before * factor:.1f}" height="{BAR_HEIGHT}" rx="4">'
            f"<title>{escape(f'before: {words(bar.before)}')}</title></rect>"
        )
    inset = 7 if bar.before else 0
    parts.append(
        f'<rect class="is" x="0" y="{top + inset}" width="{width:.1f}" height="{BAR_HEIGHT - 2 * inset}" rx="4"/>'
        f'<text class="value" x="{max(width, (bar.before or 0) * factor) + 8:.1f}" y="{top + BAR_HEIGHT / 2 + 5:g}">'
        f"{escape(words(bar.value))}</text>"
    )
    return "".join(parts)


def _horizontal(y: float, words: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick end" x="{LEFT - 8}" y="{y + 4:.1f}">{escape(words)}</text>'
    )


def _under(x: float, words: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}">{escape(words)}</text>'


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
