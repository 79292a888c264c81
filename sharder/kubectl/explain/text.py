"""Explanations as text, for people."""

from __future__ import annotations

from collections.abc import Iterator

from sharder.core.ringspec import Role
from sharder.kubectl.explain.explanation import Explanation
from sharder.kubectl.text import Painter, Tone, one_line

_WIDTH = 11


def render_explanation(explanation: Explanation, painter: Painter) -> Iterator[str]:
    """The lines of one ring."""
    role = "main" if explanation.role is Role.MAIN else "controlled"
    yield f"{painter.paint(f'Ring {explanation.ring}', Tone.STRONG)} {painter.paint(f'({role} resource)', Tone.FAINT)}"
    for name, text in _facts(explanation, painter):
        yield f"  {painter.paint(name.ljust(_WIDTH), Tone.FAINT)} {text}"


def render_stray(label: str, ring: str, painter: Painter) -> Iterator[str]:
    """A label that no ring claims."""
    yield f"{painter.paint('! label of no ring', Tone.WARN)}: {one_line(label)}"
    ring = one_line(ring)
    named = "RING" if ring.endswith("…") else ring
    yield f"  ring {ring} is not there; `kubectl sharding cleanup {named}` takes its labels off"


def _facts(explanation: Explanation, painter: Painter) -> Iterator[tuple[str, str]]:
    yield "shard", _shard(explanation, painter)
    if explanation.desired is not None and explanation.desired != explanation.current:
        yield "belongs on", painter.paint(explanation.desired, Tone.NAME)
    for at, reason in enumerate(explanation.because):
        yield "because" if at == 0 else "", one_line(reason)
    tone = {True: Tone.GOOD, False: Tone.WARN, None: Tone.FAINT}[explanation.in_place]
    outcome = explanation.outcome
    decision = f"{outcome.decision.name}  " if outcome is not None else ""
    yield "decision", painter.paint(decision, tone) + one_line(explanation.then)
    for at, missing in enumerate(explanation.missing):
        yield "missing" if at == 0 else "", painter.paint(missing, Tone.BAD)
    if explanation.key is not None:
        yield "ring key", one_line(explanation.key)


def _shard(explanation: Explanation, painter: Painter) -> str:
    if explanation.current is None:
        wanted = explanation.in_place is False
        return painter.paint("none", Tone.BAD if wanted else Tone.PLAIN)
    drains = painter.paint(", draining", Tone.WARN) if explanation.draining else ""
    shard_status = painter.paint(f"({explanation.shard_status})", Tone.FAINT) if explanation.shard_status else ""
    return f"{painter.paint(explanation.current or '(empty)', Tone.NAME)}{drains} {shard_status}".rstrip()
