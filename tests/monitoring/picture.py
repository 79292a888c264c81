"""The dashboard as one SVG, drawn from what Prometheus answers: to be looked at where there is no Grafana.

Does: put each panel where `gridPos` says, with its title, its last value or its
lines, and its legend.  Refuses: to imitate Grafana any further.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

_UNIT: Final = 58
_ROW: Final = 34
_GAP: Final = 6
_COLOURS: Final = ("#3274d9", "#56a64b", "#e0752d", "#e02f44", "#8f3bb8", "#37872d", "#fade2a", "#5794f2")
_LEGEND_LINES: Final = 4

Series = Mapping[str, Any]


def draw(panels: Sequence[Mapping[str, Any]], answers: Mapping[int, Sequence[tuple[str, Series]]]) -> str:
    """`answers`: by panel, each series with the format of its legend."""
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * _UNIT} {height}" font-family="sans-serif">',
        f'<rect width="{24 * _UNIT}" height="{height}" fill="#f4f5f5"/>',
    ]
    for panel in panels:
        place = panel["gridPos"]
        x, y = place["x"] * _UNIT + _GAP, place["y"] * _ROW + _GAP
        width, tall = place["w"] * _UNIT - _GAP, place["h"] * _ROW - _GAP
        if panel["type"] == "row":
            parts.append(f'<text x="{x}" y="{y + 18}" font-size="15" font-weight="600">{escape(panel["title"])}</text>')
            continue
        parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{tall}" fill="#fff" stroke="#dce1e6"/>')
        parts.append(f'<text x="{x + 8}" y="{y + 17}" font-size="12" font-weight="600">{escape(panel["title"])}</text>')
        series = answers.get(panel["id"], ())
        box = (x + 44, y + 28, width - 54, tall - 36)
        parts += _stat(series, box) if panel["type"] == "stat" else _lines(series, box)
    return "\n".join([*parts, "</svg>\n"])


def name_of(legend: str, series: Series) -> str:
    """The legend's text for one series."""
    labels = series["metric"]
    return re.sub(r"\{\{(\w+)\}\}", lambda found: str(labels.get(found[1], "")), legend).strip()


def _stat(series: Sequence[tuple[str, Series]], box: tuple[int, int, int, int]) -> list[str]:
    x, y, width, height = box
    shown = [f"{name_of(legend, each)} {float(each['values'][-1][1]):g}".strip() for legend, each in series]
    text = escape(", ".join(shown) or "no data")
    return [f'<text x="{x + width / 2}" y="{y + height / 2 + 6}" font-size="22" text-anchor="middle">{text}</text>']


def _lines(series: Sequence[tuple[str, Series]], box: tuple[int, int, int, int]) -> list[str]:
    x, y, width, height = box
    height -= _LEGEND_LINES * 13
    points = [(t, float(v)) for _, each in series for t, v in each["values"] if math.isfinite(float(v))]
    if not points:
        return [f'<text x="{x}" y="{y + 20}" font-size="12">no data</text>']
    first, last = min(t for t, _ in points), max(t for t, _ in points)
    top = max(v for _, v in points) or 1.0
    parts = [
        f'<text x="{x - 4}" y="{y + 10}" font-size="10" text-anchor="end">{top:.3g}</text>',
        f'<text x="{x - 4}" y="{y + height}" font-size="10" text-anchor="end">0</text>',
        f'<path d="M{x} {y}V{y + height}H{x + width}" stroke="#9aa5b1" fill="none"/>',
    ]
    for number, (legend, each) in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        drawn = " ".join(
            f"{x + (t - first) / max(last - first, 1) * width:.1f},{y + height - float(v) / top * height:.1f}"
            for t, v in each["values"]
            if math.isfinite(float(v))
        )
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        if number < _LEGEND_LINES:
            name = escape(name_of(legend, each) or "·")
            parts.append(
                f'<text x="{x}" y="{y + height + 14 + 13 * number}" font-size="11" fill="{colour}">{name}</text>'
            )
    return parts
