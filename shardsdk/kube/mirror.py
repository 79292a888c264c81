"""A store that is brought up to date event by event, and tells what each one changed.

Does: turn what the API server says (which may be old news, or leave things out)
into what changed here, so that each object's story makes sense: ADDED, then
MODIFIED, then DELETED before the next ADDED.  Refuses: to wait or to do I/O;
when to believe what is the reflector's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from shardsdk.kube.api import WatchEvent, WatchKind
from shardsdk.kube.decoding import Identity, identify
from shardsdk.kube.store import Key, Store

log: Final = logging.getLogger(__name__)

T = TypeVar("T")


class EventKind(Enum):
    """What happened to an object, as the store saw it."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    #: Nothing did; somebody asks to have the object looked at.  No store tells this.
    GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class Delta(Generic[T]):
    """One change of the store.

    `object` is what the store holds now; for DELETED it is the object as it was
    deleted (or as it left the selection), or as it was last known.  `old` is
    what the store held before.  `initial`: it comes from a list, not from news.
    """

    kind: EventKind
    object: T
    old: T | None
    initial: bool


class Listing:
    """A list under way: which objects it has shown, and for which `restart` it is made."""

    __slots__ = ("epoch", "seen")

    def __init__(self, epoch: int) -> None:
        self.epoch: int = epoch
        self.seen: set[Key] = set()


class Mirror(Generic[T]):
    """Writes one store; `keep`, `transform` and `handler` are those of the reflector called `name`."""

    __slots__ = ("_handler", "_keep", "_name", "_transform", "store")

    def __init__(
        self,
        name: str,
        store: Store[T],
        *,
        keep: Callable[[T], bool] | None,
        transform: Callable[[T], T] | None,
        handler: Callable[[Delta[T]], None] | None,
    ) -> None:
        self.store: Store[T] = store
        self._name = name
        self._keep = keep
        self._transform = transform
        self._handler = handler

    def apply(self, event: WatchEvent[T], listing: Listing | None) -> None:
        """Bring the store up to one event; `listing` is the list it belongs to, `None`: it is news."""
        if event.unfit is not None:
            self.forget(Key(*event.unfit), initial=listing is not None)
        thing = event.object
        if thing is None:
            return
        who = identify(thing)
        key = Key(who.namespace, who.name)
        gone = event.kind is WatchKind.DELETED or (self._keep is not None and not self._keep(thing))
        if self._transform is not None:
            thing = self._transform(thing)
        if gone:
            self._remove(key, thing, initial=listing is not None)
            return
        if listing is not None:
            listing.seen.add(key)
        self._put(key, who, thing, initial=listing is not None)

    def unseen(self, listing: Listing) -> list[Key]:
        """What the store holds though a complete list did not show it."""
        return [key for key in self.store.view if key not in listing.seen]

    def forget(self, key: Key, *, initial: bool = True) -> None:
        """The object vanished while nobody was looking, or nobody can tell what it is now."""
        known = self.store.get(*key)
        if known is not None:
            self._remove(key, known, initial=initial)

    def _put(self, key: Key, who: Identity, thing: T, *, initial: bool) -> None:
        old = self.store.get(*key)
        if old is not None:
            known = identify(old)
            if known.resource_version == who.resource_version and known.uid == who.uid and who.resource_version:
                return
            if known.uid != who.uid:  # deleted and made again while nobody was looking
                self._remove(key, old, initial=initial)
                old = None
        self.store.put(key, thing)
        kind = EventKind.ADDED if old is None else EventKind.MODIFIED
        self._tell(Delta(kind, thing, old, initial))

    def _remove(self, key: Key, thing: T, *, initial: bool) -> None:
        old = self.store.drop(key)
        if old is not None:
            self._tell(Delta(EventKind.DELETED, thing, old, initial))

    def _tell(self, delta: Delta[T]) -> None:
        if self._handler is not None:
            handler = self._handler
            contain(lambda: handler(delta), self._name)


def contain(function: Callable[[], None], name: str) -> None:
    """Call what the reflector's owner gave it; whatever that raises must not stop the news."""
    try:
        function()
    except Exception:
        log.exception("A reflector's handler failed, it goes on with the next event", extra={"reflector": name})
