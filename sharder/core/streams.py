"""How many watches one leader holds for all its rings, next to how many it may.

Does: count, and say in a sentence when there are too many.  Refuses: to refuse a
ring; what is over waits for a turn, and so do the leases' and rings' watches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sharder.core.ringspec import AssignBy, ResolvedRing

#: Watches on leases, rings, namespaces and webhook configurations.
OWN_STREAMS: Final = 4
#: Unassigned, stranded and draining objects; controlled ones do not drain.
MAIN_STREAMS: Final = 3
CONTROLLED_STREAMS: Final = 2
#: The RingAssignment of a ring by ranges, of whose objects nothing is watched.
RANGES_STREAMS: Final = 1
#: Part of the limit from which on people are told.
NEAR: Final = 0.8


def count_streams(rings: Iterable[ResolvedRing]) -> int:
    """Watches that a leader holds for `rings`, and for itself."""
    total = OWN_STREAMS
    for ring in rings:
        if ring.spec.assign_by is AssignBy.RANGES:
            total += RANGES_STREAMS
            continue
        controlled = CONTROLLED_STREAMS if ring.spec.watch_unassigned_controlled else CONTROLLED_STREAMS - 1
        total += sum(MAIN_STREAMS + controlled * len(main.controlled) for main in ring.mains)
    return total


def is_near(streams: int, limit: int) -> bool:
    """Whether there is not much room left."""
    return streams >= NEAR * limit


def render_watch_count(streams: int, limit: int) -> str | None:
    """What to say of too many; `None`: there is room for all."""
    if streams <= limit:
        return None
    return (
        f"the rings together take {streams} watches, and a leader holds {limit} at most; what is over waits, so objects"
        " are placed late. List fewer resources, or set watchUnassignedControlled to false where shards label their"
        " children themselves"
    )
