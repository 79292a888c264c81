"""What the model is about: one range of hashes, the shards A and B, and two sharders that know nothing of each other.

One object, the RingAssignment, names the shard that may have the range; each
shard's Lease says who holds the lease and whether the shard holds the range.
States are plain tuples: there are some hundred thousand of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: Whom the assignment names, and who holds a lease: a shard, nobody, or the sharder that took it.
NOBODY: Final = 0
SHARDS: Final = (1, 2)
SHARDER: Final = 3
NAMES: Final = ("nobody", "A", "B", "the sharder")

#: How far a shard is with the range.  FLAGGED: it has said that it holds it; CONFIRMED: and read afterwards that it is
#: still named; WORKING: and that no other shard holds it.
DOWN, IDLE, FLAGGED, CONFIRMED, WORKING = range(5)


class Lease(NamedTuple):
    """A shard's Lease."""

    holder: int
    flagged: bool


class Shard(NamedTuple):
    """A shard's process: how far it is, and whom the assignment named when its watch last told."""

    phase: int
    told: int


class Sharder(NamedTuple):
    """A sharder between its read of the assignment and its write."""

    reading: bool = False
    #: Whom the assignment named then.
    seen: int = NOBODY
    #: Nobody has written it since: a conditional write would succeed.
    fresh: bool = False
    #: The shard it wants to name, and whether it has seen the other one's Lease without the range.
    target: int = NOBODY
    other_free: bool = False


class State(NamedTuple):
    """Everything."""

    named: int
    leases: tuple[Lease, Lease]
    shards: tuple[Shard, Shard]
    sharders: tuple[Sharder, Sharder]


START: Final = State(
    NOBODY,
    (Lease(1, False), Lease(2, False)),
    (Shard(IDLE, NOBODY), Shard(IDLE, NOBODY)),
    (Sharder(), Sharder()),
)


def other(shard: int) -> int:
    """The other one of the two shards."""
    return 3 - shard


def has_two_owners(state: State) -> bool:
    """What must never be."""
    first, second = state.shards
    return first.phase == WORKING and second.phase == WORKING
