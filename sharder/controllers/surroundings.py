"""What placement works with: the API, the holds, the scope, the counters, the settings.

Refuses: to hold code; the leases' side, the namespaces and the metrics bring it.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol

from sharder.controllers.holds import JointHold
from sharder.controllers.namespaces import Namespaces
from sharder.controllers.seen import Placed
from sharder.core.decisions import Decision
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock


class Holds(Protocol):
    """The leases' side: holds on the leases of shards that are gone."""

    def hold(self, ring: str, shard: str) -> JointHold | None:
        """The hold under which objects may be taken away from `shard`; `None`: there is none."""

    async def renew(self, ring: str, shard: str) -> bool:
        """Renew the hold by a conditional write that begins now."""

    def moved(self, ring: str, shard: str) -> None:
        """An object has moved away from `shard`."""

    def look_at(self, ring: str, shard: str) -> None:
        """What is known of the shard's objects has changed."""

    def refresh(self, ring: str) -> None:
        """What is known of the objects of all the ring's shards has changed."""


class Counters(Protocol):
    """Where placement counts what it did."""

    def placed(self, ring: str, placed: Placed, decision: Decision, seconds: float) -> None:
        """An object changed hands `seconds` after it was first seen to need it."""

    def resynced(self, ring: str, objects: int, misplaced: int, seconds: float) -> None:
        """A resync has gone through everything."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What placement works with.

    `leader` is the lead as most writes need it; `confirmed` for those that late would do harm.
    """

    api: Api
    leader: Fence
    confirmed: Fence
    holds: Holds
    namespaces: Namespaces
    counters: Counters
    clock: Clock
    rng: Random
    concurrent_moves: int
    sync_period_seconds: float
    settle_after_seconds: float
