"""A store that is brought up to date event by event, and tells what each one changed.

What the API server says may be old news, or leave things out; what is told makes
sense for each object: ADDED, then MODIFIED, then DELETED before the next ADDED.
An object that does not fit its model, or at which a transform or an index raises,
is no object of the store; what is known of it is kept beside.  When to believe
what is the reflector's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import msgspec

from shardsdk.kube.api import Unfit, WatchEvent, WatchKind
from shardsdk.kube.decoding import metadata_of, unfit_of
from shardsdk.kube.identity import Identity, identify
from shardsdk.kube.store import Key, Store
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import ObjectMeta, PartialObject

log: Final = logger_of(__name__)

T = TypeVar("T")
#: What is asked about any kind can be asked about one.
T_co = TypeVar("T_co", covariant=True)


class EventKind(Enum):
    """What happened to an object, as the store saw it."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    #: Nothing did; somebody asks to have the object looked at.  No store tells this.
    GENERIC = "generic"


class Delta(msgspec.Struct, Generic[T_co], frozen=True):
    """One change of the store.

    `object` is what the store holds now; for DELETED it is the object as it was
    deleted (or as it left the selection), or as it was last known.  `old` is
    what the store held before.  `initial`: it comes from a list, not from news.
    """

    kind: EventKind
    object: T_co
    old: T_co | None
    initial: bool


#: Told of an object that cannot be shown, and of what was known of it while it
#: could not be shown before.  With an empty `error` it can be shown again.
OnUnfit = Callable[[Unfit, Unfit | None], None]


class Listing:
    """A list under way: which objects it has shown, and for which `restart` it is made.

    `before`: of one that is made to find what silence has hidden, how much had been told when it began.
    """

    __slots__ = ("before", "epoch", "seen")

    def __init__(self, epoch: int, before: int | None = None) -> None:
        self.epoch: int = epoch
        self.before: int | None = before
        self.seen: set[Key] = set()


class Mirror(Generic[T]):
    """Writes one store; the functions are those of the reflector called `name`."""

    __slots__ = ("_handler", "_keep", "_name", "_on_unfit", "_transform", "_unfit", "store", "told")

    def __init__(
        self,
        name: str,
        store: Store[T],
        *,
        keep: Callable[[T], bool] | None,
        transform: Callable[[T], T] | None,
        handler: Callable[[Delta[T]], None] | None,
        on_unfit: OnUnfit | None = None,
    ) -> None:
        self.store: Store[T] = store
        #: How many changes have been told.
        self.told: int = 0
        self._unfit: dict[Key, Unfit] = {}
        self._on_unfit = on_unfit
        self._name = name
        self._keep = keep
        self._transform = transform
        self._handler = handler

    def apply(self, event: WatchEvent[T], listing: Listing | None) -> None:
        """Bring the store up to one event; `listing` is the list it belongs to, `None`: it is news.

        News of an object that was there before the one that has its name now changes nothing.
        """
        thing, subject = event.object, event.subject
        if subject is None:
            return
        who = identify(subject)
        key = Key(who.namespace, who.name)
        if listing is None and self._is_past(key, who):
            return
        if event.unfit is not None:
            self._leave_out(event.unfit, listing)
        if thing is None:
            return
        gone = event.kind is WatchKind.DELETED or (self._keep is not None and not self._keep(thing))
        try:
            shown = thing if self._transform is None else self._transform(thing)
        except (Exception, asyncio.CancelledError) as error:
            self._refuse(thing, error, listing, gone=gone)
            return
        if gone:
            self._remove(key, shown, initial=listing is not None)
            if key in self._unfit:
                self._end(key, metadata_of(thing))
            return
        if listing is not None:
            listing.seen.add(key)
        self._put(key, who, shown, listing)

    @property
    def unfit(self) -> Mapping[Key, Unfit]:
        """What cannot be shown, though it is there; follows what is told."""
        return MappingProxyType(self._unfit)

    def unseen(self, listing: Listing) -> list[Key]:
        """What was there though a complete list did not show it."""
        return [key for key in (*self.store.view, *self._unfit) if key not in listing.seen]

    def forget(self, key: Key) -> None:
        """The object vanished while nobody was looking."""
        known = self.store.get(*key)
        if known is not None:
            self._remove(key, known, initial=True)
        if key in self._unfit:
            self._end(key, self._unfit[key].metadata)

    def forget_those(self, gone: Callable[[object], bool], listing: Listing | None = None) -> None:
        """These objects are no business of the store's any more, but for what `listing` has shown."""
        known: list[tuple[Key, object]] = [(key, self.store.get(*key)) for key in self.store.view]
        known += [(key, PartialObject(unfit.metadata)) for key, unfit in self._unfit.items()]
        for key, thing in known:
            if (listing is None or key not in listing.seen) and gone(thing):
                self.forget(key)

    def _is_past(self, key: Key, who: Identity) -> bool:
        """Whether an object under this name has ended since: a list has shown the next one of its name already.

        A watch that goes on where it was before a list beside it tells what lies between (`shardsdk.kube.slices`).
        """
        known: object = self.store.at(key)
        if known is None:
            if key not in self._unfit:
                return False
            known = PartialObject(self._unfit[key].metadata)
        now = identify(known)
        return now.uid != who.uid and not is_newer(who.resource_version, now.resource_version)

    def _put(self, key: Key, who: Identity, thing: T, listing: Listing | None) -> None:
        initial = listing is not None
        old = self.store.at(key)
        if old is not None:
            known = identify(old)
            same = known.resource_version == who.resource_version and known.uid == who.uid and who.resource_version
            if same and (not initial or _says_the_same(old, thing)):
                return
            if known.uid != who.uid:  # deleted and made again while nobody was looking
                self._remove(key, old, initial=initial)
                old = None
        try:
            self.store.put(key, thing)
        except (Exception, asyncio.CancelledError) as error:
            self._refuse(thing, error, listing)
            return
        before = self._unfit.pop(key, None)
        if before is not None:
            self._tell_unfit(Unfit(metadata_of(thing), error=""), before)
        kind = EventKind.ADDED if old is None else EventKind.MODIFIED
        self._tell(Delta(kind, thing, old, initial))

    def _remove(self, key: Key, thing: T, *, initial: bool) -> None:
        old = self.store.drop(key)
        if old is not None:
            self._tell(Delta(EventKind.DELETED, thing, old, initial))

    # -- what cannot be shown ---------------------------------------------------

    def _refuse(self, thing: T, error: BaseException, listing: Listing | None, *, gone: bool = False) -> None:
        """A function of the user's does not bear the object."""
        unfit = unfit_of(thing, error, gone=gone)
        extra = {"reflector": self._name, "namespace": unfit.metadata.namespace, "object": unfit.metadata.name}
        log.error("Object left out: a transform or an index of its cache raised", extra=extra, exc_info=error)
        self._leave_out(unfit, listing)

    def _leave_out(self, unfit: Unfit, listing: Listing | None) -> None:
        """The object is there, or was until now, but cannot be shown."""
        key = Key(unfit.metadata.namespace, unfit.metadata.name)
        before = self._unfit.pop(key, None)
        if not unfit.gone:
            self._unfit[key] = unfit
            if listing is not None:
                listing.seen.add(key)
            # A store that was set back gives versions twice.
            if before is not None and before.metadata == unfit.metadata:
                return
        known = self.store.get(*key)
        if known is not None:
            self._remove(key, known, initial=listing is not None)
        self._tell_unfit(unfit, before)

    def _end(self, key: Key, metadata: ObjectMeta) -> None:
        before = self._unfit.pop(key)
        self._tell_unfit(Unfit(metadata, before.error, gone=True), before)

    # -- who is told ------------------------------------------------------------

    def _tell(self, delta: Delta[T]) -> None:
        self.told += 1
        if self._handler is not None:
            handler = self._handler
            contain(lambda: handler(delta), self._name)

    def _tell_unfit(self, unfit: Unfit, before: Unfit | None) -> None:
        self.told += 1
        if self._on_unfit is not None:
            on_unfit = self._on_unfit
            contain(lambda: on_unfit(unfit, before), self._name)


def is_newer(version: str, known: str) -> bool:
    """Whether `version` of an object is newer than the version `known`; what cannot be compared may be.

    Source for versions as numbers: KEP-5504, comparable resource versions.
    """
    try:
        return int(version) > int(known)
    except ValueError:
        return True


def _says_the_same(old: object, new: object) -> bool:
    """Whether a list shows in a version that is known what is known: a store that was set back gives versions twice.

    Types that compare by identity are taken at their version.
    """
    if type(new).__eq__ is object.__eq__:
        return True
    try:
        return bool(old == new)
    except (Exception, asyncio.CancelledError):  # the user's own comparison
        return True


def contain(function: Callable[[], None], name: str) -> None:
    """Call what the reflector's owner gave it; whatever that raises must not stop the news.

    Also a `CancelledError`: no task is cancelled while it runs a plain function, so this is one of the function's own.
    """
    try:
        function()
    except (Exception, asyncio.CancelledError):
        log.exception("A reflector's handler failed, it goes on with the next event", extra={"reflector": name})
