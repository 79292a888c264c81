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

from sharder.controllers.holds import CommitProof
from sharder.controllers.registry import LeaseKey, Registry, RingEntry, SeenLease
from sharder.core.shards import LeaseFacts, Standing, State
from shardsdk.kube.clock import Clock

_NONE: Final[Mapping[LeaseKey, State]] = {}

Judge = Callable[[SeenLease], tuple[LeaseFacts, Standing]]


@dataclass(slots=True)
class _Known:
    """What the leases of `entry` came to; it counts before `until`, for leases that say what they said.

    `basis`: what proof of time it rests on.  `told`: the ready shards as the registry has got them from here.
    """

    entry: RingEntry
    basis: Any
    states: dict[LeaseKey, State]
    until: float
    told: frozenset[str] | None = None


class Standings:
    """The states of the leases of every ring; tells the registry which shards are ready."""

    def __init__(self, registry: Registry, proof: CommitProof, clock: Clock, judge: Judge) -> None:
        self._registry = registry
        self._proof = proof
        self._clock = clock
        self._judge = judge
        self._known: dict[str, _Known] = {}

    def of(self, ring: str) -> Mapping[LeaseKey, State]:
        """The state of each of the ring's leases when they were last looked at."""
        known = self._known.get(ring)
        return known.states if known is not None else _NONE

    def forget(self, ring: str) -> None:
        """The ring is gone."""
        self._known.pop(ring, None)

    def look_at_all(self, entry: RingEntry) -> None:
        """Judge every lease of the ring."""
        basis, now = self._proof.basis(), self._clock.monotonic()
        until, states = float("inf") if basis is not None else now, dict[LeaseKey, State]()
        for key, seen in entry.leases.items():
            standing = self._judge(seen)[1]
            states[key] = standing.state
            if standing.look_again_at is not None:
                until = min(until, standing.look_again_at)
        known = self._known[entry.name] = _Known(entry, basis, states, until)
        ready = frozenset(name for (_, name), state in states.items() if state is State.READY)
        self._registry.set_ready(entry.name, ready)
        known.told = entry.ready

    def look(self, entry: RingEntry) -> None:
        """Judge what time or proof may have changed; of every lease that changed itself, `look_at` was told."""
        if self._counts(entry) is None:
            self.look_at_all(entry)

    def look_at(self, entry: RingEntry, key: LeaseKey) -> Standing | None:
        """One lease says something new: how it stands if its state is what it was; `None`: it is not."""
        known, seen = self._counts(entry), entry.leases.get(key)
        if known is not None and seen is not None:
            standing = self._judge(seen)[1]
            if known.states.get(key) is standing.state:
                if standing.look_again_at is not None:
                    known.until = min(known.until, standing.look_again_at)
                return standing
        self.look_at_all(entry)
        return None

    def _counts(self, entry: RingEntry) -> _Known | None:
        """What is known of the ring, if it still counts."""
        known = self._known.get(entry.name)
        if (
            known is None
            or known.entry is not entry
            or known.told is not entry.ready
            or known.basis is None
            or self._clock.monotonic() >= known.until
            or known.basis != self._proof.basis()
        ):
            return None
        return known
