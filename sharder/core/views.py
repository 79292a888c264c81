"""What a replica's webhook knows of one ring, as one immutable snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from sharder.core.membership import Membership
from sharder.core.ringspec import ResolvedRing


@dataclass(frozen=True, slots=True)
class RingView:
    """A ring, its shards, and whether they are too old to assign by.

    `stale`: the watches of leases or rings have been silent so long that this
    replica may be behind; it then assigns nothing, the leader's watches do.
    """

    resolved: ResolvedRing
    membership: Membership
    stale: bool = False
