"""What placement works with: the API, the holds, the scope, the counters, the settings.

Refuses: to hold code; the leases' side, the namespaces and the metrics bring it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Protocol

from sharder.controllers.holds import CommitProof
from sharder.controllers.namespaces import Namespaces
from sharder.controllers.seen import Placed
from sharder.core.decisions import Decision
from sharder.core.takeover import Limits
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock


class Counters(Protocol):
    """Where placement counts what it did."""

    def placed(self, ring: str, placed: Placed, decision: Decision, seconds: float) -> None:
        """An object changed hands `seconds` after it was first seen to need it."""

    def took_over(self, ring: str) -> None:
        """The lease of a shard was acquired."""

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
    proof: CommitProof
    limits: Limits
    namespaces: Namespaces
    counters: Counters
    clock: Clock
    rng: Random
    concurrent_moves: int
    sync_period_seconds: float
    settle_after_seconds: float
    takeovers_at_once: asyncio.Semaphore
