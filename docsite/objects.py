"""What an object of a shard waits for, and the steps of its state: from the tables that the code runs by."""

from __future__ import annotations

from enum import Enum

from shardsdk.reconcile.explain import GATE, MEANINGS, Wait
from shardsdk.reconcile.state import TRANSITIONS, ChildEvent, Children, Drain, DrainEvent, WriteEvent, Writes


def render_waits() -> str:
    """Every reason why an object is not reconciled, in the order in which they are asked."""
    asked = [Wait.RUNNING, *(wait for wait, _ in GATE)]
    lines = ["| waits for | because | is woken by |", "|---|---|---|"]
    for wait in [*asked, *(each for each in Wait if each not in asked)]:
        because, woken_by = MEANINGS[wait]
        lines.append(f"| `{wait.name}` {wait.value} | {because} | {woken_by} |")
    return "\n".join(lines)


def render_steps() -> str:
    """What each event leads to; what changes nothing is left out."""
    parts = (_steps(Writes, WriteEvent), _steps(Children, ChildEvent), _steps(Drain, DrainEvent))
    return "\n\n".join("\n".join(lines) for lines in parts)


def _steps(states: type[Enum], events: type[Enum]) -> list[str]:
    lines = [f"| {states.__name__} | when | then | why |", "|---|---|---|---|"]
    for (before, event), step in TRANSITIONS.items():
        if isinstance(before, states) and isinstance(event, events) and (step.to is not before or step.wakes):
            woken = ", woken" if step.wakes else ""
            lines.append(f"| `{before.name}` {before.value} | {event.value} | `{step.to.name}`{woken} | {step.why} |")
    return lines
