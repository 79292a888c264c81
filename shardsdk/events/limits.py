"""How many Kubernetes Events are kept, and how often they are written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventLimits:
    """How much is kept and how often is written.

    Each object may have `burst` Events at once and then one per
    `seconds_per_event`; meanwhile repeats are counted together.
    """

    pending: int = 512
    pending_per_object: int = 10
    remembered: int = 1024
    burst: int = 25
    seconds_per_event: float = 30.0
    attempts: int = 5
    retry_seconds: float = 1.0
    #: More messages than these for one reason about one object are combined, until it has been quiet for so long.
    similar: int = 10
    similar_within_seconds: float = 600.0
    #: An Event that was not repeated for so long gets a successor: the API server forgets it after an hour.
    repeat_within_seconds: float = 3000.0
