"""State machines of the core as tables: the rows that the code runs by, in its own words."""

from __future__ import annotations

from collections.abc import Iterable

from sharder.core import handover
from sharder.core.observed import REMAINS, Known, Says
from sharder.core.resync import CONCLUSIONS, TABLE, Event
from sharder.core.takeover import RULES


def render_takeover() -> str:
    """What is done with a lease: for each holder the rules in their order."""
    rows: list[tuple[str, ...]] = []
    for holder, rules in RULES.items():
        for number, rule in enumerate(rules):
            again = rule.look_again.words if rule.look_again is not None else "something changes"
            again = again if rule.act.name == "WAIT" else ""
            rows.append((holder.value if number == 0 else "", rule.when.words, rule.act.name, rule.why.value, again))
    return _table(("held by", "when", "act", "reason, as it is logged", "looked at again when"), rows)


def render_observed() -> str:
    """For how long a lease counts as held by who had it before: what was known by what it says."""
    rows = [(known.value, *(REMAINS[known, says].value for says in Says)) for known in Known]
    return _table(("was", *(f"is {says.value}" for says in Says)), rows)


def render_resync() -> str:
    """What each event changes about the passes over a ring."""
    return _table(
        ("event", "then"), [(event.value, "; ".join(each.words for each in TABLE[event].effects)) for event in Event]
    )


def render_conclusions() -> str:
    """What the end of a deep pass means, in the order in which that is asked."""
    return _table(
        ("when a deep pass ends, and", "this happens"), [(each.words, each.event.value) for each in CONCLUSIONS]
    )


def render_handover() -> str:
    """The order in which a family changes hands."""
    rows = [
        (
            phase.value,
            "; ".join(need.words for need in way.needs),
            way.step.value,
            way.then.value,
            way.otherwise.value if way.otherwise is not None else "again, later",
        )
        for phase, way in handover.TABLE.items()
    ]
    return _table(("phase", "needs", "step", "then", "otherwise"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
