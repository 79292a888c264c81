"""The states of all leases of a ring, judged again only where something can have changed.

Renewals come all the time, and each says something about one lease: looking at
all of them at each would cost a leader with a thousand shards a million looks a
lease duration.  A state that is known stays until its moment to look again, as
long as time counts without a break.

Refuses: to know how a lease is judged; it only knows when that has to be done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sharder.cache.rings import LeaseKey, RingSnapshot
from sharder.core.observed import ObservedLease
from sharder.core.shards import LeaseFacts, ShardState, State
from sharder.takeover.fences import CommitProof
from shardsdk.kube.clock import Clock

_NONE: Final[Mapping[LeaseKey, State]] = {}

#: For so long states count while time may not: each renewal of a shard would have all of them judged, and a leader
#: that is late would be later for it.
UNPROVEN_SECONDS: Final = 0.25

Judge = Callable[[ObservedLease], tuple[LeaseFacts, ShardState]]


@dataclass(slots=True)
class _Known:
    """What the leases of the ring with that uid came to; it counts before `until`, for leases that say what they said.

    `basis`: what proof of time it rests on.
    """

    uid: str
    basis: Any
    states: dict[LeaseKey, State]
    until: float
    ready: frozenset[str]


class ShardStates:
    """The states of the leases of one ring."""

    def __init__(self, proof: CommitProof, clock: Clock, judge: Judge) -> None:
        self._proof = proof
        self._clock = clock
        self._judge = judge
        self._known: _Known | None = None

    @property
    def states(self) -> Mapping[LeaseKey, State]:
        """The state of each of the ring's leases when they were last looked at."""
        return self._known.states if self._known is not None else _NONE

    @property
    def ready(self) -> frozenset[str] | None:
        """The shards that are ready; `None` while nobody has looked."""
        return self._known.ready if self._known is not None else None

    def forget(self) -> None:
        """The ring is gone."""
        self._known = None

    def look_at_all(self, snapshot: RingSnapshot) -> None:
        """Judge every lease of the ring."""
        basis, now = self._proof.basis(), self._clock.monotonic()
        until, states = float("inf") if basis is not None else now + UNPROVEN_SECONDS, dict[LeaseKey, State]()
        for key, seen in snapshot.leases.items():
            judged = self._judge(seen)[1]
            states[key] = judged.state
            if judged.look_again_at is not None:
                until = min(until, judged.look_again_at)
        ready = frozenset(name for (_, name), state in states.items() if state is State.READY)
        self._known = _Known(snapshot.uid, basis, states, until, ready)

    def look(self, snapshot: RingSnapshot) -> None:
        """Judge what time or proof may have changed; of every lease that changed itself, `look_at` was told."""
        if self._counts(snapshot) is None:
            self.look_at_all(snapshot)

    def look_at(self, snapshot: RingSnapshot, key: LeaseKey) -> ShardState | None:
        """One lease says something new: how it stands if its state is what it was; `None`: it is not."""
        known, seen = self._counts(snapshot), snapshot.leases.get(key)
        if known is not None and seen is not None:
            judged = self._judge(seen)[1]
            if known.states.get(key) is judged.state:
                if judged.look_again_at is not None:
                    known.until = min(known.until, judged.look_again_at)
                return judged
        self.look_at_all(snapshot)
        return None

    def _counts(self, snapshot: RingSnapshot) -> _Known | None:
        """What is known of the ring, if it still counts."""
        known = self._known
        if (
            known is None
            or known.uid != snapshot.uid
            or self._clock.monotonic() >= known.until
            or known.basis != self._proof.basis()
        ):
            return None
        return known
