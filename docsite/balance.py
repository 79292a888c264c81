"""How even objects are spread, counted by the hash ring itself."""

from __future__ import annotations

from collections import Counter
from typing import Final

from sharder.core.hashring import HashRing

SHARDS: Final = (3, 10, 20, 50)
OBJECTS: Final = (300, 3_000, 30_000)


def render_balance() -> str:
    """What the fullest shard has more than the mean, on average over as many rounds as 30,000 objects allow."""
    lines = [
        "| shards | " + " | ".join(f"{count:,} objects" for count in OBJECTS) + " |",
        "|---" * (len(OBJECTS) + 1) + "|",
    ]
    for shards in SHARDS:
        ring = HashRing(f"shard-{number}" for number in range(shards))
        cells = (f"{round(100 * excess(ring, count))} %" for count in OBJECTS)
        lines.append(f"| {shards} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def excess(ring: HashRing, objects: int) -> float:
    """The fullest shard's objects over the mean, less one."""
    rounds = OBJECTS[-1] // objects
    fullest = sum(
        max(Counter(ring.owner(f"/Secret/default/{turn}-{number}") for number in range(objects)).values())
        for turn in range(rounds)
    )
    return fullest / rounds / (objects / len(ring)) - 1
