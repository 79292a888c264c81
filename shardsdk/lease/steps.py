"""What the keeper is told and what it answers, as data: phases, moments, actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple


class Phase(Enum):
    """Where the keeper stands."""

    SEEKING = "wants the lease"
    HOLDING = "holds the lease"
    LOST = "held the lease and must not go on"
    LEAVING = "gives the lease up"
    LEFT = "is done with the lease"


class LossKind(Enum):
    """Why a lease was lost."""

    DEADLINE = "no renewal was confirmed in time"
    TAKEN = "somebody else holds it"


@dataclass(frozen=True, slots=True)
class Loss:
    """How the lease was lost, for code and for people."""

    kind: LossKind
    message: str


class Moment(NamedTuple):
    """What the keeper is told about time and chance.

    `monotonic` is in seconds, `wall` goes into the Lease and nowhere else,
    `chance` is drawn from [0, 1) for jitter.  `missed`: seconds for which this machine,
    and `monotonic` with it, is found to have stood still so far.
    """

    monotonic: float
    wall: datetime
    chance: float = 0.0
    missed: float = 0.0


class Asked(NamedTuple):
    """When a request's sending began, by `Moment.monotonic`, and what that had missed until then."""

    at: float
    missed: float = 0.0


@dataclass(frozen=True, slots=True)
class Read:
    """Read the Lease consistently; then `saw` or `failed`."""

    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Write:
    """Create the Lease (`create`) or merge-patch it; then `wrote`, `refused` or `failed`."""

    body: Mapping[str, Any]
    create: bool
    timeout_seconds: float


class Wait(NamedTuple):
    """Do nothing for so long.  `why` is for people; empty when there is nothing to tell."""

    seconds: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """The lease is lost: whatever it covers must stop."""

    loss: Loss


@dataclass(frozen=True, slots=True)
class Left:
    """Nothing is left to do; `clean`: the lease does not say any more that this process holds it."""

    clean: bool


Action = Read | Write | Wait | Stop | Left
