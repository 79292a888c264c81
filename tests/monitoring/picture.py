"""The dashboard as one SVG, drawn from what Prometheus answers: to be looked at where there is no Grafana.

Does: put each panel where `gridPos` says, with its title, its last value in the
colour of its threshold or its lines, in its unit, and its legend.  Refuses: to
imitate Grafana any further.
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

#: From good to bad.
_TONES: Final = {"grey": "#9aa5b1", "green": "#37872d", "orange": "#e0752d", "red": "#c4162a"}

Series = Mapping[str, Any]
Panel = Mapping[str, Any]


def draw(panels: Sequence[Panel], answers: Mapping[int, Sequence[tuple[str, Series]]]) -> str:
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
        if panel["type"] == "stat":
            parts += _stat(panel, series, (x + 8, y + 26, width - 16, tall - 34))
        else:
            parts += _lines(panel, series, (x + 54, y + 28, width - 64, tall - 36))
    return "\n".join([*parts, "</svg>\n"])


def name_of(legend: str, series: Series) -> str:
    """The legend's text for one series."""
    labels = series["metric"]
    return re.sub(r"\{\{(\w+)\}\}", lambda found: str(labels.get(found[1], "")), legend).strip()


def shown_as(value: float, defaults: Mapping[str, Any]) -> str:
    """A value with the panel's unit, or the word that the panel maps it to."""
    for mapping in defaults.get("mappings") or ():
        if found := mapping["options"].get(f"{value:g}"):
            return str(found["text"])
    match defaults.get("unit"):
        case "s":
            return _duration(value)
        case "bytes":
            return f"{value / 2**20:.0f} MiB"
        case "reqps" | "ops":
            return f"{value:.3g}/s"
        case _:
            return f"{value:.3g}"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= (2 * size if size > 1 else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1000:.3g} ms" if seconds else "0 s"


def _stat(panel: Panel, series: Sequence[tuple[str, Series]], box: tuple[int, int, int, int]) -> list[str]:
    x, y, width, height = box
    defaults = panel["fieldConfig"]["defaults"]
    named = panel["options"].get("textMode") == "value_and_name"
    values = [(name_of(legend, each), float(each["values"][-1][1])) for legend, each in series]
    text = ", ".join(f"{name if named else ''} {shown_as(value, defaults)}".strip() for name, value in values)
    fill = _TONES[max((_tone(value, defaults) for _, value in values), key=list(_TONES).index, default="grey")]
    size = min(22, int(width / max(len(text), 1) * 1.7))
    return [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{fill}"/>',
        f'<text x="{x + width / 2}" y="{y + height / 2 + 7}" font-size="{size}" text-anchor="middle" fill="#fff">'
        f"{escape(text or 'no data')}</text>",
    ]


def _tone(value: float, defaults: Mapping[str, Any]) -> str:
    """The colour of the threshold that a value has reached; the first has no value."""
    reached = [each for each in defaults["thresholds"]["steps"] if each["value"] is None or value >= each["value"]]
    return str(reached[-1]["color"])


def _lines(panel: Panel, series: Sequence[tuple[str, Series]], box: tuple[int, int, int, int]) -> list[str]:
    x, y, width, height = box
    height -= _LEGEND_LINES * 13
    points = [(t, float(v)) for _, each in series for t, v in each["values"] if math.isfinite(float(v))]
    if not points:
        return [f'<text x="{x}" y="{y + 20}" font-size="12">no data</text>']
    first, last = min(t for t, _ in points), max(t for t, _ in points)
    top = max(v for _, v in points) or 1.0
    top_text = escape(shown_as(top, panel["fieldConfig"]["defaults"]))
    parts = [
        f'<text x="{x - 4}" y="{y + 10}" font-size="10" text-anchor="end">{top_text}</text>',
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
