"""What a fault is: data about something that is done to a running ring, and what may come of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.chaos.rig import Rig

Act = Callable[[Rig, Random], Awaitable[None]]

#: What a machine with little to spare needs beyond the leases: processes start, objects are moved.
SLACK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is done while a ring works.

    `moves`: how often each object of the `victims` may change hands; others may not at all.  `None`: as often as
    membership demands, which each run is held to in any case.  `leases`, `seconds`: for how long an object may be
    without an owner, in lease durations and on top of them; both 0 where nobody is kept from its work.  `setup` is
    what the rig is made with, beyond the usual.
    """

    name: str
    what: str
    act: Act
    moves: int | None = 0
    victims: tuple[str, ...] = ()
    leases: float = 0.0
    seconds: float = 0.0
    setup: dict[str, Any] = field(default_factory=dict)

    def longest_allowed(self, lease_seconds: float) -> float:
        """Seconds for which an object may be without an owner."""
        return self.leases * lease_seconds + self.seconds + SLACK_SECONDS
