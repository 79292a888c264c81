"""Sequence diagrams: a few lines of text become an SVG that needs nothing else.

    actor one = Shard one
    one -> api : patch: remove both labels
    one -> one : finishes its reconcile
    == the drain ==
    note one, api : …

Does: draw actors, messages, messages to oneself, notes and headings, top to
bottom.  Refuses: a line that it does not understand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from typing import Final

_MARGIN: Final = 24
_COLUMN: Final = 232
_BOX_WIDTH: Final = 168
_BOX_HEIGHT: Final = 36
_STEP: Final = 46
_LINE: Final = 17
_NOTE_CHARACTERS: Final = 30
_LABEL_CHARACTERS: Final = 36

_ACTOR: Final = re.compile(r"actor (\w+) = (.+)")
_MESSAGE: Final = re.compile(r"(\w+) (->|-->) (\w+) : (.+)")
_NOTE: Final = re.compile(r"note (\w+)(?:, (\w+))? : (.+)")
_HEADING: Final = re.compile(r"== (.+) ==")

_STYLE: Final = (
    "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#1f2933;"
    "paint-order:stroke;stroke:#fff;stroke-width:3px}.plain,.heading,.name{stroke:none}"
    ".actor{fill:#e8eefb;stroke:#3f51b5;stroke-width:1.2}.name{font-weight:600}"
    ".life{stroke:#9aa5b1;stroke-dasharray:4 4}.message{stroke:#1f2933;stroke-width:1.4;fill:none}"
    ".note{fill:#fff8dc;stroke:#c9b458}.band{fill:#eef1f5}.heading{font-weight:600;fill:#3f51b5}"
)


@dataclass(slots=True)
class _Drawing:
    """What is drawn so far, and how far down."""

    columns: dict[str, int]
    y: int = 2 * _MARGIN + _BOX_HEIGHT
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "middle") -> None:
        """One line of text."""
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{style}">{escape(text)}</text>')

    def lines(self, x: float, lines: list[str], anchor: str = "middle") -> None:
        """Several lines, the first at the present height."""
        for number, line in enumerate(lines):
            self.text(x, self.y + number * _LINE, line, anchor=anchor)


def draw(source: str) -> str:
    """The SVG of one diagram.  Raises: ValueError for a line that cannot be read."""
    lines = [line.strip() for line in source.splitlines() if line.strip() and not line.startswith("#")]
    actors = [match for line in lines if (match := _ACTOR.fullmatch(line))]
    drawing = _Drawing({match[1]: _MARGIN + _BOX_WIDTH // 2 + _COLUMN * at for at, match in enumerate(actors)})
    width = _MARGIN * 2 + _BOX_WIDTH + _COLUMN * (len(actors) - 1)
    for line in lines:
        _draw_line(drawing, line, width)
    height = drawing.y + _MARGIN
    heads = [_actor(drawing.columns[match[1]], match[2], height) for match in actors]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' role="img">',
            f"<style>{_STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"'
            ' orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#1f2933"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
            *(life for life, _ in heads),
            *drawing.parts,
            *(box for _, box in heads),
            "</svg>\n",
        ]
    )


def _draw_line(drawing: _Drawing, line: str, width: int) -> None:
    if _ACTOR.fullmatch(line):
        return
    if found := _HEADING.fullmatch(line):
        drawing.parts.append(f'<rect class="band" y="{drawing.y}" width="{width}" height="26"/>')
        drawing.text(_MARGIN, drawing.y + 18, found[1], "heading", "start")
        drawing.y += 26 + _LINE
    elif found := _NOTE.fullmatch(line):
        _draw_note(drawing, found[1], found[2] or found[1], found[3])
    elif found := _MESSAGE.fullmatch(line):
        _draw_message(drawing, found[1], found[3], found[4], dashed=found[2] == "-->")
    else:
        raise ValueError(f"not a line of a sequence diagram: {line}")


def _draw_note(drawing: _Drawing, first: str, last: str, text: str) -> None:
    left, right = sorted((drawing.columns[first], drawing.columns[last]))
    lines = _wrap(text, _NOTE_CHARACTERS + (right - left) // 7)
    width, height = right - left + 200, len(lines) * _LINE + 12
    drawing.parts.append(
        f'<rect class="note" x="{left - 100}" y="{drawing.y - 4}" width="{width}" height="{height}" rx="3"/>'
    )
    drawing.y += 14
    drawing.lines((left + right) / 2, lines)
    drawing.y += height


def _draw_message(drawing: _Drawing, sender: str, receiver: str, text: str, *, dashed: bool) -> None:
    start, end = drawing.columns[sender], drawing.columns[receiver]
    look = 'class="message" marker-end="url(#head)"' + (' stroke-dasharray="5 4"' if dashed else "")
    if start == end:
        lines = _wrap(text, _LABEL_CHARACTERS - 12)
        drawing.y += 8
        # The last actor has its room on the left.
        side = -1 if start == max(drawing.columns.values()) else 1
        drawing.lines(start + 36 * side, lines, "start" if side > 0 else "end")
        top = drawing.y - 6
        drawing.parts.append(f'<path {look} d="M{start} {top}h{28 * side}v18h{-26 * side}"/>')
        drawing.y += max(len(lines) * _LINE, 18) + 12
        return
    lines = _wrap(text, _LABEL_CHARACTERS * max(abs(end - start) // _COLUMN, 1) - 6)
    drawing.y += 6
    drawing.lines((start + end) / 2, lines)
    drawing.y += (len(lines) - 1) * _LINE + 8
    gap = 2 if end > start else -2
    drawing.parts.append(f'<path {look} d="M{start} {drawing.y}H{end - gap}"/>')
    drawing.y += _STEP - 22


def _actor(x: int, name: str, height: int) -> tuple[str, str]:
    left = x - _BOX_WIDTH // 2
    return (
        f'<path class="life" d="M{x} {_MARGIN + _BOX_HEIGHT}V{height - _MARGIN // 2}"/>',
        f'<rect class="actor" x="{left}" y="{_MARGIN}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="5"/>'
        f'<text class="name" x="{x}" y="{_MARGIN + 23}" text-anchor="middle">{escape(name)}</text>',
    )


def _wrap(text: str, characters: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > characters:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
