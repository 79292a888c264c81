"""What the search found, as the page docs/model.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.model.flaws import Flaw
from tests.model.search import Outcome

PAGE: Final = Path(__file__).parents[2] / "docs" / "model.md"

_HEAD: Final = """# The model of ranges

<!-- Printed by `make model`. -->

Objects are assigned by labels, or [by ranges of their hashes](clusterring.md#labels-or-ranges). There no object carries
a label: one object, the RingAssignment, names a shard for each range, and each shard says in its Lease which ranges it
holds. This page is about the protocol by which a range goes from one shard to another, apart from the code of it.

1. A sharder takes the range from its shard, by a write on the version that it read.
2. The shard sees that, ends what it does with the range's objects, and takes the range off its Lease.
3. A sharder reads that nobody is named, then the Leases of all other shards. Where none holds the range it names the
   next shard, by a write on the version that it read *before* those Leases.
4. The shard sees its name, says in its Lease that it holds the range, and only then reads the assignment and, after
   that, the Leases of the others, all from the API server and not from a cache. It works when it is still named and no
   other shard that has its lease says that it holds the range; otherwise it gives the range back and waits.

Step 3 is one net, the look at the Leases in step 4 another. The model is one range, two shards and two sharders that
know nothing of each other. Whatever can happen happens in it at any time: watches tell what was true once, processes
stop and start, leases run out, are taken and given back; in the last two columns people write whatever they like into
the assignment by hand, too. `make model` looks at every state that can be reached, {states} in all, and so it does with
one rule broken at a time. As long as one net is left nobody gets two owners; where neither is, or where a shard does
not keep its own promises, they are found. From each of the {designed} states of the protocol as designed a shard can
come to work again, so nothing waits for ever.

| what is wrong | states | two owners | states, with edits by hand | two owners |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A flaw, and what was found without edits by hand and with them."""

    flaw: Flaw
    alone: Outcome
    edited: Outcome


def render(rows: Iterable[Row]) -> str:
    """The page: a table, then the shortest way to two owners for each flaw that leads there."""
    rows = list(rows)
    total = sum(outcome.states for row in rows for outcome in (row.alone, row.edited))
    designed = next(row.alone.states for row in rows if row.flaw is Flaw.NONE)
    text = _HEAD.format(states=f"{total:,}", designed=f"{designed:,}")
    for row in rows:
        cells = [cell for outcome in (row.alone, row.edited) for cell in render_cells(outcome)]
        text += f"| {row.flaw.value} | " + " | ".join(cells) + " |\n"
    text += "\nThe shortest ways there, without edits by hand unless it takes one:\n"
    for row in rows:
        way = row.alone.violation or row.edited.violation
        if way:
            text += f"\n**{row.flaw.value[0].upper()}{row.flaw.value[1:]}:** {render_way(way)}.\n"
    return text


def render_cells(outcome: Outcome) -> tuple[str, str]:
    """How many states, and what was found."""
    found = f"**in {len(outcome.violation)} steps**" if outcome.violation else "none"
    return f"{outcome.states:,}", found


def render_way(way: Iterable[str]) -> str:
    """The steps in their order."""
    return "; ".join(way)
