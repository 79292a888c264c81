"""What a controller knows of one object besides the object itself, and how that changes: a literal table.

    reconciled ──> has written ──> the caches show it ──> may be reconciled again
    arrived ──> its children are listed ──> the caches show them ──> may be reconciled
    drain label ──> nothing works on it ──> acknowledged ──> gone
                (once nothing that a dead process of this name had sent can be executed)

An `ObjectState` is one controller's, and is there only while there is something
to know; a `DrainState` is the shard's, because a drain waits for all controllers
of a resource.  What `TRANSITIONS` says is what happens: expectations, barrier
and drains (beside this file) keep nothing else by object, and look up there what
comes next.  What waits in the queue, and for how long, the queue says.

Nothing here acts: a step that `wakes` is for the caller to carry out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from shardsdk.errors import TerminalError
from shardsdk.kube.store import Key
from shardsdk.protocol.objects import GroupResource
from shardsdk.queueing.item import Priority


class Writes(Enum):
    """Whether the caches show what was written for an object."""

    SHOWN = "the caches show all that was written for it"
    EXPECTED = "a cache has yet to show what was written for it"
    POSTPONED = "the same, and it was about to be reconciled: it waits"


class Children(Enum):
    """Whether the caches show an object's children."""

    UNKNOWN = "its children were not looked for since it came"
    LISTING = "it waits for a list of its children that begins from now on"
    CATCHING_UP = "it waits for the caches to show what that list has shown"
    KNOWN = "the caches have shown all of its children"


class Drain(Enum):
    """How far an object's drain is."""

    NONE = "nobody asks for it"
    EARLY = "its drain label was seen; it is not given away while writes of a dead process of its name may be executed"
    ASKED = "its drain label was seen; it is about to be acknowledged"
    BUSY = "its acknowledgement waits for a reconcile that runs"
    VOID = "its acknowledgement did not count, and is made again after a pause"
    ACKNOWLEDGED = "it was acknowledged; the cache still shows it"


class WriteEvent(Enum):
    """What happens to `Writes`."""

    WROTE = "a write was answered, and a cache does not show it"
    POSTPONED = "it was about to be reconciled"
    SHOWN = "the caches show the last of it"
    OVERDUE = "the caches did not show it in time"
    LEFT = "the object is gone"


class ChildEvent(Enum):
    """What happens to `Children`."""

    ARRIVED = "the object came, or others may have made children of it"
    UNANSWERED = "a write for it had no answer"
    POSTPONED = "it was about to be reconciled"
    LISTED = "a list has ended, and the caches show its children"
    MISSED = "a list has ended, and the caches do not show all of its children"
    SHOWN = "the caches show the last of them"
    LATE = "the caches did not show them in time"
    LEFT = "the object is gone, or about to leave this shard"


class DrainEvent(Enum):
    """What happens to `Drain`."""

    EARLY = "the object is shown with a drain label, and writes of a dead process of this name may be executed"
    SEEN = "the object is shown with a drain label"
    GONE = "the object is shown without, or is gone"
    BUSY = "a reconcile of it runs as it is to be acknowledged"
    ENDED = "no reconcile of it runs any more"
    ACCEPTED = "the acknowledgement was written"
    VOIDED = "the acknowledgement was written, and the labels are there again"


State = Writes | Children | Drain
Event = WriteEvent | ChildEvent | DrainEvent


@dataclass(frozen=True, slots=True)
class Step:
    """What an event leads to, and why; `wakes`: the object is added to the queue."""

    to: State
    why: str
    wakes: bool = False


_STAYS: Final = "nothing changes"
_FORGET: Final = "who comes back is begun with anew"

#: Every state with every event that it may meet.
TRANSITIONS: Final[Mapping[tuple[State, Event], Step]] = {
    (Writes.SHOWN, WriteEvent.WROTE): Step(Writes.EXPECTED, "a cache a moment too old shows a child as missing"),
    (Writes.SHOWN, WriteEvent.POSTPONED): Step(Writes.SHOWN, "it may be reconciled"),
    (Writes.SHOWN, WriteEvent.SHOWN): Step(Writes.SHOWN, _STAYS),
    (Writes.SHOWN, WriteEvent.OVERDUE): Step(Writes.SHOWN, _STAYS),
    (Writes.SHOWN, WriteEvent.LEFT): Step(Writes.SHOWN, _FORGET),
    (Writes.EXPECTED, WriteEvent.WROTE): Step(Writes.EXPECTED, "it waits for that, too"),
    (Writes.EXPECTED, WriteEvent.POSTPONED): Step(Writes.POSTPONED, "it is woken when the caches show it, or in time"),
    (Writes.EXPECTED, WriteEvent.SHOWN): Step(Writes.SHOWN, "nobody asked for it meanwhile"),
    (Writes.EXPECTED, WriteEvent.OVERDUE): Step(Writes.SHOWN, "only a list can tell what the cache has missed"),
    (Writes.EXPECTED, WriteEvent.LEFT): Step(Writes.SHOWN, _FORGET),
    (Writes.POSTPONED, WriteEvent.WROTE): Step(Writes.POSTPONED, "it waits for that, too"),
    (Writes.POSTPONED, WriteEvent.POSTPONED): Step(Writes.POSTPONED, _STAYS),
    (Writes.POSTPONED, WriteEvent.SHOWN): Step(Writes.SHOWN, "it may be reconciled", wakes=True),
    (Writes.POSTPONED, WriteEvent.OVERDUE): Step(Writes.SHOWN, "only a list can tell what the cache has missed"),
    (Writes.POSTPONED, WriteEvent.LEFT): Step(Writes.SHOWN, _FORGET),
    (Children.UNKNOWN, ChildEvent.ARRIVED): Step(Children.LISTING, "others may have made children of it"),
    (Children.UNKNOWN, ChildEvent.UNANSWERED): Step(Children.LISTING, "there may be a child that no answer named"),
    (Children.UNKNOWN, ChildEvent.POSTPONED): Step(Children.LISTING, "others may have made children of it"),
    (Children.UNKNOWN, ChildEvent.LISTED): Step(Children.UNKNOWN, _STAYS),
    (Children.UNKNOWN, ChildEvent.MISSED): Step(Children.UNKNOWN, _STAYS),
    (Children.UNKNOWN, ChildEvent.SHOWN): Step(Children.UNKNOWN, _STAYS),
    (Children.UNKNOWN, ChildEvent.LATE): Step(Children.UNKNOWN, _STAYS),
    (Children.UNKNOWN, ChildEvent.LEFT): Step(Children.UNKNOWN, _FORGET),
    (Children.LISTING, ChildEvent.ARRIVED): Step(Children.LISTING, "a list under way began too early for it"),
    (Children.LISTING, ChildEvent.UNANSWERED): Step(Children.LISTING, "a list under way began too early for it"),
    (Children.LISTING, ChildEvent.POSTPONED): Step(Children.LISTING, _STAYS),
    (Children.LISTING, ChildEvent.LISTED): Step(Children.KNOWN, "it may be reconciled", wakes=True),
    (Children.LISTING, ChildEvent.MISSED): Step(Children.CATCHING_UP, "the cache is behind the list"),
    (Children.LISTING, ChildEvent.SHOWN): Step(Children.LISTING, _STAYS),
    (Children.LISTING, ChildEvent.LATE): Step(Children.LISTING, _STAYS),
    (Children.LISTING, ChildEvent.LEFT): Step(Children.UNKNOWN, _FORGET),
    (Children.CATCHING_UP, ChildEvent.ARRIVED): Step(Children.LISTING, "that list began too early for it"),
    (Children.CATCHING_UP, ChildEvent.UNANSWERED): Step(Children.LISTING, "that list began too early for it"),
    (Children.CATCHING_UP, ChildEvent.POSTPONED): Step(Children.CATCHING_UP, _STAYS),
    (Children.CATCHING_UP, ChildEvent.LISTED): Step(Children.CATCHING_UP, _STAYS),
    (Children.CATCHING_UP, ChildEvent.MISSED): Step(Children.CATCHING_UP, _STAYS),
    (Children.CATCHING_UP, ChildEvent.SHOWN): Step(Children.KNOWN, "it may be reconciled", wakes=True),
    (Children.CATCHING_UP, ChildEvent.LATE): Step(Children.LISTING, "the child may be gone: another list tells"),
    (Children.CATCHING_UP, ChildEvent.LEFT): Step(Children.UNKNOWN, _FORGET),
    (Children.KNOWN, ChildEvent.ARRIVED): Step(Children.LISTING, "others may have made children of it meanwhile"),
    (Children.KNOWN, ChildEvent.UNANSWERED): Step(Children.LISTING, "there may be a child that no answer named"),
    (Children.KNOWN, ChildEvent.POSTPONED): Step(Children.KNOWN, "it may be reconciled"),
    (Children.KNOWN, ChildEvent.LISTED): Step(Children.KNOWN, _STAYS),
    (Children.KNOWN, ChildEvent.MISSED): Step(Children.KNOWN, _STAYS),
    (Children.KNOWN, ChildEvent.SHOWN): Step(Children.KNOWN, _STAYS),
    (Children.KNOWN, ChildEvent.LATE): Step(Children.KNOWN, _STAYS),
    (Children.KNOWN, ChildEvent.LEFT): Step(Children.UNKNOWN, "others may make children of it from now on"),
    (Drain.NONE, DrainEvent.EARLY): Step(Drain.EARLY, "it cannot be given away yet; what a list shows so rests"),
    (Drain.NONE, DrainEvent.SEEN): Step(Drain.ASKED, "the sharder asks for it", wakes=True),
    (Drain.NONE, DrainEvent.GONE): Step(Drain.NONE, _STAYS),
    (Drain.NONE, DrainEvent.BUSY): Step(Drain.NONE, _STAYS),
    (Drain.NONE, DrainEvent.ENDED): Step(Drain.NONE, _STAYS),
    (Drain.NONE, DrainEvent.ACCEPTED): Step(Drain.NONE, _STAYS),
    (Drain.NONE, DrainEvent.VOIDED): Step(Drain.NONE, _STAYS),
    (Drain.EARLY, DrainEvent.EARLY): Step(Drain.EARLY, _STAYS),
    (Drain.EARLY, DrainEvent.SEEN): Step(Drain.ASKED, "none of them can be executed any more", wakes=True),
    (Drain.EARLY, DrainEvent.GONE): Step(Drain.NONE, "the drain was withdrawn, or the object is gone"),
    (Drain.EARLY, DrainEvent.BUSY): Step(Drain.EARLY, _STAYS),
    (Drain.EARLY, DrainEvent.ENDED): Step(Drain.EARLY, _STAYS),
    (Drain.EARLY, DrainEvent.ACCEPTED): Step(Drain.EARLY, _STAYS),
    (Drain.EARLY, DrainEvent.VOIDED): Step(Drain.EARLY, _STAYS),
    (Drain.ASKED, DrainEvent.EARLY): Step(Drain.ASKED, _STAYS),
    (Drain.ASKED, DrainEvent.SEEN): Step(Drain.ASKED, "it is newer", wakes=True),
    (Drain.ASKED, DrainEvent.GONE): Step(Drain.NONE, "the drain was withdrawn, or the object is gone"),
    (Drain.ASKED, DrainEvent.BUSY): Step(Drain.BUSY, "nobody else may have it before that has ended"),
    (Drain.ASKED, DrainEvent.ENDED): Step(Drain.ASKED, _STAYS),
    (Drain.ASKED, DrainEvent.ACCEPTED): Step(Drain.ACKNOWLEDGED, "it is not this shard's any more"),
    (Drain.ASKED, DrainEvent.VOIDED): Step(Drain.VOID, "a webhook has changed more than the two labels"),
    (Drain.BUSY, DrainEvent.EARLY): Step(Drain.BUSY, _STAYS),
    (Drain.BUSY, DrainEvent.SEEN): Step(Drain.BUSY, "it is newer", wakes=True),
    (Drain.BUSY, DrainEvent.GONE): Step(Drain.NONE, "the drain was withdrawn, or the object is gone"),
    (Drain.BUSY, DrainEvent.BUSY): Step(Drain.BUSY, _STAYS),
    (Drain.BUSY, DrainEvent.ENDED): Step(Drain.ASKED, "nothing works on it any more", wakes=True),
    (Drain.BUSY, DrainEvent.ACCEPTED): Step(Drain.ACKNOWLEDGED, "it is not this shard's any more"),
    (Drain.BUSY, DrainEvent.VOIDED): Step(Drain.VOID, "a webhook has changed more than the two labels"),
    (Drain.VOID, DrainEvent.EARLY): Step(Drain.VOID, _STAYS),
    (Drain.VOID, DrainEvent.SEEN): Step(Drain.VOID, "the pause goes on", wakes=True),
    (Drain.VOID, DrainEvent.GONE): Step(Drain.NONE, "the drain was withdrawn, or the object is gone"),
    (Drain.VOID, DrainEvent.BUSY): Step(Drain.BUSY, "nobody else may have it before that has ended"),
    (Drain.VOID, DrainEvent.ENDED): Step(Drain.VOID, _STAYS),
    (Drain.VOID, DrainEvent.ACCEPTED): Step(Drain.ACKNOWLEDGED, "it is not this shard's any more"),
    (Drain.VOID, DrainEvent.VOIDED): Step(Drain.VOID, "the next pause is twice as long"),
    (Drain.ACKNOWLEDGED, DrainEvent.EARLY): Step(Drain.ACKNOWLEDGED, _STAYS),
    (Drain.ACKNOWLEDGED, DrainEvent.SEEN): Step(Drain.ASKED, "it was given back, and asked for", wakes=True),
    (Drain.ACKNOWLEDGED, DrainEvent.GONE): Step(Drain.NONE, "the cache shows what was written"),
    (Drain.ACKNOWLEDGED, DrainEvent.BUSY): Step(Drain.ACKNOWLEDGED, _STAYS),
    (Drain.ACKNOWLEDGED, DrainEvent.ENDED): Step(Drain.ACKNOWLEDGED, _STAYS),
    (Drain.ACKNOWLEDGED, DrainEvent.ACCEPTED): Step(Drain.ACKNOWLEDGED, _STAYS),
    (Drain.ACKNOWLEDGED, DrainEvent.VOIDED): Step(Drain.VOID, "a webhook has changed more than the two labels"),
}  # fmt: skip


_State = TypeVar("_State", bound=State)


def _take(state: _State, event: Event) -> tuple[_State, bool]:
    """The state that `event` leads to, and whether the object is woken."""
    step = TRANSITIONS[state, event]
    assert isinstance(step.to, type(state))
    return step.to, step.wakes


@dataclass(frozen=True, slots=True)
class Child:
    """An object of whatever resource that a cache is to show."""

    resource: GroupResource
    key: Key

    def __str__(self) -> str:
        return f"{self.resource} {self.key}"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a cache is to show from `since` to `until`: a version, or that the object with uid `ends` has ended."""

    since: float
    until: float
    version: str = ""
    ends: str | None = None


@dataclass(slots=True)
class Arrival:
    """An owner's waiting for its children; by its identity one arrival is told from the next.

    `wakes`: somebody wants it reconciled.  `missing` are the versions that the
    last list has shown and the caches have not, `until` when they are to.
    """

    since: float
    priority: Priority
    wakes: bool
    missing: dict[Child, str] = field(default_factory=dict)
    until: float = 0.0


@dataclass(slots=True)
class ObjectState:
    """What one controller knows of an object.

    `expected` is what `writes` waits for, until `alarm` at the latest; `arrival` is
    what `children` waits for; `uid` is the object's whose children are known.
    `error` is what its last reconcile raised, `waits_for` what leads to another if nothing else is known.
    """

    children: Children
    writes: Writes = Writes.SHOWN
    expected: dict[Child, Expected] | None = None
    alarm: float | None = None
    uid: str = ""
    arrival: Arrival | None = None
    error: str = ""
    waits_for: str = TerminalError.waits_for

    def wrote(self, event: WriteEvent) -> bool:
        """Take a step of `writes`; whether it wakes the object."""
        self.writes, wakes = _take(self.writes, event)
        return wakes

    def heard(self, event: ChildEvent) -> bool:
        """Take a step of `children`; whether it wakes the object."""
        self.children, wakes = _take(self.children, event)
        return wakes

    @property
    def waits(self) -> bool:
        """Whether somebody wants it reconciled and it may not be yet."""
        return self.writes is Writes.POSTPONED or self.arrival is not None


class ObjectStates:
    """The objects of one controller of which there is something to know.

    `at_first` is how an object's children are before anything is known of it:
    where objects are handed over, unknown.
    """

    def __init__(self, at_first: Children = Children.UNKNOWN) -> None:
        self.at_first = at_first
        self._states: dict[Key, ObjectState] = {}

    def get(self, key: Key) -> ObjectState | None:
        """What is known; `None`: nothing."""
        return self._states.get(key)

    def of(self, key: Key) -> ObjectState:
        """What is known, to be changed."""
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = ObjectState(self.at_first)
        return state

    def note_error(self, key: Key, error: str, waits_for: str = TerminalError.waits_for) -> None:
        """A reconcile has ended with `error`; empty: well."""
        if error or key in self._states:
            state = self.of(key)
            state.error, state.waits_for = error, waits_for
            self.tidy(key)

    def tidy(self, key: Key) -> None:
        """Keep nothing of an object of which there is nothing to know."""
        state = self._states.get(key)
        known = state is None or state.error or state.writes is not Writes.SHOWN or state.arrival is not None
        if state is not None and not known and state.children in (Children.UNKNOWN, self.at_first):
            del self._states[key]

    def waiting(self) -> list[Key]:
        """Those that wait, or whose last reconcile failed."""
        return [key for key, state in list(self._states.items()) if state.waits or state.error]

    def known(self) -> int:
        """Of how many objects something is known."""
        return len(self._states)


@dataclass(slots=True)
class DrainState:
    """An object's drain, the same for all controllers of its resource.

    `since` it was asked for; `version` is the one that was acknowledged, `voided`
    how many acknowledgements in a row did not count, `not_before` when the next may be made.
    `begun` counts what began since the drain label was seen and may have sent writes for it: reconciles, and
    acknowledgements whose outcome is open.  `settling_at` is what that was when this shard's writes were last begun to
    be settled for it, `settled_at` the same of those that were.
    """

    drain: Drain = Drain.NONE
    since: float = 0.0
    version: str = ""
    voided: int = 0
    not_before: float = 0.0
    begun: int = 0
    settling_at: int = -1
    settled_at: int = -1

    def heard(self, event: DrainEvent) -> bool:
        """Take a step of `drain`; whether it wakes the object."""
        self.drain, wakes = _take(self.drain, event)
        return wakes

    @property
    def open(self) -> bool:
        """Whether it was asked for and not acknowledged."""
        return self.drain not in (Drain.NONE, Drain.ACKNOWLEDGED)

    @property
    def settled(self) -> bool:
        """Whether nothing that was sent for the object can still be executed, once no reconcile of it runs."""
        return self.settled_at == self.begun


class Awaited:
    """Which owners wait for a cache to show an object; what changes hands may be awaited by two."""

    def __init__(self) -> None:
        self._owners: dict[Child, set[Key]] = {}

    def owners(self, child: Child) -> list[Key]:
        """Who waits for `child`, by name."""
        return sorted(self._owners.get(child, ()))

    def add(self, child: Child, owner: Key) -> None:
        """`owner` waits for `child`."""
        self._owners.setdefault(child, set()).add(owner)

    def drop(self, child: Child, owner: Key) -> None:
        """`owner` does not wait for `child`."""
        owners = self._owners[child]
        owners.discard(owner)
        if not owners:
            del self._owners[child]
