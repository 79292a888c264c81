"""The figures of `bench.frameworks` as a picture: a panel for each figure, a group of bars for each phase."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from bench.frameworks import CONTENDERS, MEASURED, PHASES

COLOURS: Final = ("#c2703d", "#3d7ac2", "#3a9a6b")
BOLD: Final = 'font-weight="bold"'
UNITS: Final = {"seconds": "s until all is right", "CPU": "s of CPU", "memory": "MiB", "writes per object": "writes"}
WIDTH: Final = 760
PANEL_WIDTH: Final = WIDTH // 2
BAR: Final = 14
LEFT: Final = 110
#: What a bar may take of a panel's width; its number stands behind it.
LONGEST: Final = 200
PANEL_HEIGHT: Final = 46 + len(PHASES) * (len(CONTENDERS) * BAR + 12)
LEGEND: Final = 30


def draw(figures: Mapping[str, float], title: str) -> str:
    """An SVG."""
    panels = [_panel(figures, figure, number) for number, figure in enumerate(MEASURED)]
    height = LEGEND + 24 + 2 * PANEL_HEIGHT
    legend = "".join(
        f'<rect x="{10 + 130 * number}" y="32" width="10" height="10" fill="{colour}"/>'
        + _text(26 + 130 * number, 41, each.label)
        for number, (each, colour) in enumerate(zip(CONTENDERS, COLOURS, strict=True))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
        f' font-size="11">\n<title>{escape(title)}</title>\n<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n'
        f"{_text(10, 20, title, BOLD)}\n{legend}\n" + "\n".join(panels) + "\n</svg>\n"
    )


def _panel(figures: Mapping[str, float], figure: str, number: int) -> str:
    left, top = (number % 2) * PANEL_WIDTH, LEGEND + 24 + (number // 2) * PANEL_HEIGHT
    most = max(figures[f"{each.label}, {phase}: {figure}"] for each in CONTENDERS for phase in PHASES)
    drawn = [_text(left + 10, top + 16, f"{figure} ({UNITS[figure]})", BOLD)]
    y = top + 28
    for phase in PHASES:
        drawn.append(_text(left + LEFT - 6, y + 2 * BAR - 3, phase, 'text-anchor="end"'))
        for each, colour in zip(CONTENDERS, COLOURS, strict=True):
            value = figures[f"{each.label}, {phase}: {figure}"]
            length = round(LONGEST * value / most) if most else 0
            drawn.append(f'<rect x="{left + LEFT}" y="{y}" width="{length}" height="{BAR - 2}" fill="{colour}"/>')
            drawn.append(_text(left + LEFT + length + 4, y + BAR - 4, f"{value:.1f}"))
            y += BAR
        y += 12
    return "\n".join(drawn)


def _text(x: float, y: float, words: str, further: str = "") -> str:
    return f'<text x="{x}" y="{y}" fill="#222" {further}>{escape(words)}</text>'
