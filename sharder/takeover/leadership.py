"""One leadership, as whoever writes under it knows it: the client, its fences, its clock, where it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

from sharder.backlog.objects import RingResource
from sharder.core.decisions import Decision
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock


class Counters(Protocol):
    """Where it is counted what was done, and shown how a ring is."""

    def labelled(self, ring: str, resource: RingResource, decision: Decision, seconds: float) -> None:
        """An object changed hands `seconds` after it was first seen to need it."""

    def resynced(self, ring: str, objects: int, seconds: float) -> None:
        """A resync has gone through everything."""

    def took_over(self, ring: str) -> None:
        """The lease of a shard was acquired."""

    def conditions(self, ring: str, conditions: Mapping[str, bool | None]) -> None:
        """Which conditions hold, as written to the ring's status (`None`: unknown)."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """What is written with.

    `fence` is the lead, for writes that do no harm when they are late: they are conditional on
    what was seen, and the next leader repeats them.  `confirmed` is the lead for all others.
    """

    api: Api
    fence: Fence
    confirmed: Fence
    counters: Counters
    clock: Clock
    rng: Random
