"""Line charts as SVG that need nothing else and follow the reader's light or dark theme."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 800, 430
LEFT, RIGHT, TOP, BOTTOM = 64, 132, 64, 52
LABEL_GAP = 17
"""Least distance between two labels beside their lines, in pixels."""

# Okabe and Ito's colours, which people with any colour vision tell apart, darkened where they are
# too pale for white and lightened where they are too dark for black.
LIGHT = ("#0072b2", "#d55e00", "#00855f", "#b8508f", "#b07800", "#1b1f24", "#2f93c9", "#7a4fbf")
DARK = ("#56b4e9", "#ff8a3d", "#2fd0a0", "#e79ac6", "#f0c350", "#ffffff", "#9ad4ff", "#b79bff")
DASHES = ("", "9 4", "2 4")
"""Dashes of the first eight lines, of the next eight, and of all others."""

STYLE = """
  .paper { fill: #ffffff } .ink { fill: #1b1f24 } .faint { fill: #59636e }
  .grid { stroke: #e3e6ea } .axis { stroke: #8c959f } .ideal { stroke: #8c959f }
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif }
  .title { font-size: 17px; font-weight: 600 } .small { font-size: 12px }
"""
STYLE_DARK = """
    .paper { fill: #14181d } .ink { fill: #e8ebee } .faint { fill: #a3adb8 }
    .grid { stroke: #2b323a } .axis { stroke: #6b7580 } .ideal { stroke: #8b95a0 }
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: y by x, and the lowest and highest y by x that it stands for."""

    label: str
    values: Mapping[int, float]
    lowest: Mapping[int, float]
    highest: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart shows. `ideal`, if there is one, is drawn dashed, with its own label."""

    title: str
    note: str
    x_title: str
    lines: Sequence[Line]
    x_from: int
    x_to: int
    y_from: float
    y_to: float
    unit: str = ""
    ideal: Mapping[int, float] | None = None
    ideal_label: str = ""


def nice_step(span: float, steps: int) -> float:
    """Return the least of 1, 2, 5 x 10^n that cuts `span` into at most `steps` pieces."""
    size = 10.0**-6
    while True:
        for factor in (1, 2, 5):
            if span <= factor * size * steps:
                return factor * size
        size *= 10


def nice_limit(value: float, steps: int = 6) -> float:
    """Return the least multiple of a nice step that is not below `value` (1 if that is 0)."""
    if value <= 0:
        return 1.0
    step = nice_step(value, steps)
    return step * -(-value // step)


def svg(chart: Chart) -> str:
    """Return `chart` as an SVG document."""
    x_scale = (WIDTH - LEFT - RIGHT) / (chart.x_to - chart.x_from)
    y_scale = (HEIGHT - TOP - BOTTOM) / (chart.y_to - chart.y_from)

    def at(x: float, y: float) -> tuple[float, float]:
        inside = min(max(y, chart.y_from), chart.y_to)
        return LEFT + (x - chart.x_from) * x_scale, HEIGHT - BOTTOM - (
            inside - chart.y_from
        ) * y_scale

    space = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
    parts = [
        f'<svg {space} role="img" aria-label="{escape(chart.title)}">',
        f"<style>{_style(len(chart.lines))}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        f'<text class="ink title" x="20" y="28">{escape(chart.title)}</text>',
        f'<text class="faint small" x="20" y="47">{escape(chart.note)}</text>',
        *_axes(chart, at),
    ]
    labels: list[tuple[float, str, str]] = []
    if chart.ideal is not None:
        points = _points(chart, chart.ideal, at)
        parts.append(
            f'<path class="ideal" fill="none" stroke-dasharray="3 4" d="{_path(points)}"/>'
        )
        labels.append((points[-1][1], "faint", chart.ideal_label))
    for i, line in enumerate(chart.lines):
        points = _points(chart, line.values, at)
        upper = _points(chart, line.highest, at)
        lower = _points(chart, line.lowest, at)
        parts.append(f'<path class="band c{i}" d="{_path([*upper, *reversed(lower)])}Z"/>')
        dash = DASHES[min(i // len(LIGHT), len(DASHES) - 1)]
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<path class="line c{i}"{dashed} d="{_path(points)}"/>')
        labels.append((points[-1][1], f"label c{i}", line.label))
    parts += _labels(labels)
    return "\n".join([*parts, "</svg>", ""])


At = Callable[[float, float], tuple[float, float]]


def _style(lines: int) -> str:
    dark = f"{STYLE_DARK}{_colours(DARK, lines)}"
    return f"{STYLE}{_colours(LIGHT, lines)}  @media (prefers-color-scheme: dark) {{{dark}  }}\n"


def _colours(palette: Sequence[str], lines: int) -> str:
    rules = ["  .line { fill: none; stroke-width: 2.2; stroke-linejoin: round }"]
    rules.append("  .band { fill-opacity: 0.16; stroke: none } .label { font-weight: 600 }")
    for i in range(lines):
        colour = palette[i % len(palette)]
        rules.append(f"  .line.c{i} {{ stroke: {colour} }}")
        rules.append(f"  .band.c{i}, .label.c{i} {{ fill: {colour} }}")
    return "\n".join(rules) + "\n"


def _ticks(start: float, end: float, steps: int) -> list[float]:
    step = nice_step(end - start, steps)
    first = -(-start // step)
    return [(first + i) * step for i in range(int((end - first * step) / step + 1e-9) + 1)]


def _axes(chart: Chart, at: At) -> list[str]:
    parts = []
    for y in _ticks(chart.y_from, chart.y_to, 6):
        height = at(chart.x_from, y)[1]
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}"'
            f' y2="{height:.1f}"/>'
        )
        parts.append(
            f'<text class="faint" text-anchor="end" x="{LEFT - 8}" y="{height + 4:.1f}">'
            f"{y:,.10g}{chart.unit}</text>"
        )
    floor = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>')
    for x in _ticks(chart.x_from, chart.x_to, 8):
        across = at(x, chart.y_from)[0]
        parts.append(
            f'<line class="axis" x1="{across:.1f}" x2="{across:.1f}" y1="{floor}"'
            f' y2="{floor + 5}"/>'
        )
        parts.append(
            f'<text class="faint" text-anchor="middle" x="{across:.1f}" y="{floor + 20}">'
            f"{x:.10g} %</text>"
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text class="faint small" text-anchor="middle" x="{middle:.1f}" y="{HEIGHT - 12}">'
        f"{escape(chart.x_title)}</text>"
    )
    return parts


def _points(chart: Chart, values: Mapping[int, float], at: At) -> list[tuple[float, float]]:
    inside = [(x, y) for x, y in sorted(values.items()) if chart.x_from <= x <= chart.x_to]
    return [at(x, y) for x, y in inside] or [at(chart.x_from, chart.y_from)]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _labels(labels: Sequence[tuple[float, str, str]]) -> list[str]:
    """Place labels beside the ends of their lines, moved apart where they would overlap.

    Each cluster of labels that touch stays centred on where its lines end.
    """
    clusters: list[list[tuple[float, str, str]]] = []
    for label in sorted(labels):
        clusters.append([label])
        while len(clusters) > 1 and _bottom(clusters[-2]) + LABEL_GAP > _top(clusters[-1]):
            clusters[-2:] = [clusters[-2] + clusters[-1]]
    parts = []
    for cluster in clusters:
        top = min(max(_top(cluster), TOP), HEIGHT - BOTTOM - (len(cluster) - 1) * LABEL_GAP)
        for i, (_, css, text) in enumerate(cluster):
            parts.append(
                f'<text class="{css}" x="{WIDTH - RIGHT + 8}" y="{top + i * LABEL_GAP + 4:.1f}">'
                f"{escape(text)}</text>"
            )
    return parts


def _top(cluster: Sequence[tuple[float, str, str]]) -> float:
    middle = sum(label[0] for label in cluster) / len(cluster)
    return middle - (len(cluster) - 1) * LABEL_GAP / 2


def _bottom(cluster: Sequence[tuple[float, str, str]]) -> float:
    return _top(cluster) + (len(cluster) - 1) * LABEL_GAP
