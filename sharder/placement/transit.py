"""Owners between the drain and their next shard: never more than concurrentMoves of one ring.

Does: give a place to each object that is asked back from its shard, which it
keeps until it is assigned, and let the others wait with the shard that works on
them.  What a former leader drained, and what nobody has for any other reason,
holds a place as well: nothing is drained that could not be assigned soon.

How many of the places are used by owners with children depends on how fast they
become free: as many as let an owner be without a shard for a fraction of a second,
on a machine that has nothing else to do and on one that is overloaded.

No shard gets more than its share of the places, nor two of one resource while others
have none, so one that hangs stops the moves of no other.  An object that has not got
on for `OVERDUE_SECONDS` (its reconcile takes long, or some of its children cannot be
written) is overdue: it keeps its place, but others need not wait until it is faster.
What nobody ever had and cannot be placed gives its place back by then.

Refuses: to write or to read; workers do, once they have a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sharder.backlog.objects import ItemKey
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import SlimObject

#: An object that keeps its place for longer is overdue.
OVERDUE_SECONDS: Final = 10.0
#: Places that are used at first, and at least.
FIRST_PLACES: Final = 8
LEAST_PLACES: Final = 4
#: An object that was without an owner for longer is one that waited: fewer are let go at a time.
SOON_SECONDS: Final = 0.25
#: What one object that waited takes off the number of places, and what a whole round of others adds to it.
STEP_DOWN: Final = 0.25
STEP_UP: Final = 4.0

#: Resource (by index) and shard: what drains of one resource by one shard have in common.  Lanes take turns.
Lane = tuple[int, str]


@dataclass(slots=True)
class Passage:
    """One object's; `shard` is the one that is asked for it (`None`: it has let go).

    `begun`: somebody has seen the drain label, or no label at all; until then only the place is taken.
    `moves`: it was let go by a shard, and not made without one.  `in_hand`: whoever has entered with it is about to
    have it begin, or to leave; `since` counts anew when it begins.
    """

    shard: str | None
    since: float
    begun: bool
    moves: bool = True
    in_hand: bool = False


class Transit:
    """The places of one ring; `go(key, object)` is told of each object that has got one after it waited.

    `ready` says of a resource (by index) whether its objects could be assigned soon, `paced` whether they
    have no owner for as long as it takes to move others with them; all places are used for what is not.
    `resources`: how many there are whose objects drain.
    """

    def __init__(
        self,
        places: int,
        clock: Clock,
        go: Callable[[ItemKey, SlimObject], None],
        *,
        ready: Callable[[int], bool] = lambda resource: True,
        paced: Callable[[int], bool] = lambda resource: True,
        resources: int = 1,
    ) -> None:
        self._places = places
        self._used = float(min(FIRST_PLACES, places))
        self._clock = clock
        self._go = go
        self._ready = ready
        self._paced = paced
        self._resources = resources
        self._shards: frozenset[str] = frozenset()
        self._open: set[int] = set()
        self._fresh: dict[ItemKey, Passage] = {}
        self._overdue: dict[ItemKey, Passage] = {}
        self._asked: Counter[Lane] = Counter()
        self._late = 0
        self._held: Counter[Lane] = Counter()
        self._waiting: dict[Lane, dict[ItemKey, SlimObject]] = {}
        #: Since when those that their shard has let go were not seen to be unassigned.
        self._unseen: dict[ItemKey, float] = {}

    def __len__(self) -> int:
        return len(self._fresh) + len(self._overdue)

    @property
    def waiting(self) -> int:
        """How many objects wait for a place."""
        return sum(map(len, self._waiting.values()))

    # -- asking for a place ------------------------------------------------

    def enter(self, key: ItemKey, obj: SlimObject, shard: str) -> bool:
        """Whether the object may be drained now; if not, it waits, and `go` is told.

        It has its place for as long as that takes: until `drains` or `leave_unless_begun`.
        """
        passage = self._find(key)
        if passage is None:
            lane = key.resource, shard
            if not self._has_place(lane):
                self._waiting.setdefault(lane, {})[key] = obj
                return False
            passage = Passage(shard, self._clock.monotonic(), begun=False)
            self._put(key, passage)
        passage.in_hand = not passage.begun
        self._forget_waiting(key)
        return True

    def leave_unless_begun(self, key: ItemKey) -> None:
        """Nothing came of it."""
        passage = self._find(key)
        if passage is not None and not passage.begun:
            self.leave(key)

    # -- what becomes of it ------------------------------------------------

    def drains(self, key: ItemKey, shard: str) -> None:
        """The object has the drain label, and its shard is available."""
        passage = self._find(key)
        if passage is None:
            self._put(key, Passage(shard, self._clock.monotonic(), begun=True))
        elif not passage.begun:
            passage.begun, passage.in_hand, passage.since = True, False, self._clock.monotonic()

    def let_go(self, key: ItemKey, *, seen: bool) -> None:
        """Its shard has acknowledged; `seen`: and it was seen to have none now."""
        before = self._find(key)
        if seen:
            self._unseen.pop(key, None)
        elif before is None or before.shard is None:
            return  # assigned already, or seen already
        else:
            self._unseen[key] = self._clock.monotonic()
        if before is None or before.shard is not None:
            self._drop(key)
            self._put(key, Passage(None, self._clock.monotonic(), begun=True, moves=before is not None))
            self.admit()

    def leave(self, key: ItemKey) -> None:
        """It has a shard again, or is gone."""
        self._unseen.pop(key, None)
        self._forget_waiting(key)
        passage = self._find(key)
        if passage is not None:
            if passage.shard is None and passage.moves:
                self._adapt(self._clock.monotonic() - passage.since)
            self._drop(key)
            self.admit()

    def unseen_since(self, moment: float) -> list[ItemKey]:
        """Objects whose shard let them go before `moment` and that no watch has shown since; told once."""
        found = [key for key, since in self._unseen.items() if since < moment]
        for key in found:
            del self._unseen[key]
        return found

    def set_shards(self, available: frozenset[str]) -> None:
        """Only these are asked for anything; what is with others does not drain, it is stranded."""
        self._shards = available
        for lane in [lane for lane in self._waiting if lane[1] not in available]:
            del self._waiting[lane]
        for key in [key for passages in (self._fresh, self._overdue) for key, each in passages.items()
                    if each.shard is not None and each.shard not in available]:  # fmt: skip
            self._drop(key)
        self.admit()

    def open(self, resource: int) -> None:
        """What drains already of this resource (by index) is known; until then nothing else is drained."""
        if resource not in self._open:
            self._open.add(resource)
            self.admit()

    def look(self, held: Callable[[ItemKey], bool]) -> None:
        """Have nobody wait for those that take too long; `held`: whether a watch shows an object."""
        before = self._clock.monotonic() - OVERDUE_SECONDS
        slow = {key: passage for key, passage in (self._fresh | self._overdue).items() if passage.since <= before}
        for key, passage in slow.items():
            if not (passage.in_hand or held(key)):
                self._drop(key)
        late = [key for key, passage in slow.items() if key in self._fresh and (passage.begun or passage.in_hand)]
        for key in late:
            if not self._fresh[key].moves:
                self._drop(key)
                continue
            passage = self._overdue[key] = self._fresh.pop(key)
            if passage.shard is not None:
                self._asked[key.resource, passage.shard] -= 1
                self._late += 1
        self.admit()

    # -- inside ------------------------------------------------------------

    def admit(self) -> None:
        """Give the places that are free to those that wait."""
        more = True
        while more:
            more = False
            for lane in list(self._waiting):
                if not self._has_place(lane):
                    continue
                waiting = self._waiting.pop(lane)
                key, obj = next(iter(waiting.items()))
                del waiting[key]
                if waiting:
                    self._waiting[lane] = waiting
                self._put(key, Passage(lane[1], self._clock.monotonic(), begun=False))
                self._go(key, obj)
                more = True

    def _has_place(self, lane: Lane) -> bool:
        if lane[0] not in self._open or not self._ready(lane[0]):
            return False
        number, held = max(len(self._shards), 1), self._held.get(lane, 0)
        used = int(self._used) if self._paced(lane[0]) else self._places
        if self._asked[lane] >= max(used // number, 1) or held >= max(self._places // number, 1):
            return False
        free = self._places - len(self)
        if free <= 0:
            # More lanes hang than there are places: the others' objects go one after the other.
            return self._late >= self._places and not (self._fresh or held)
        without = self._resources * number - len(self._held)
        return len(self._fresh) < max(used, 1) and (not held or free > without)

    def _adapt(self, unowned_seconds: float) -> None:
        if unowned_seconds > SOON_SECONDS:
            self._used = max(self._used - STEP_DOWN, min(LEAST_PLACES, self._places))
        else:
            self._used = min(self._used + STEP_UP / self._used, self._places)

    def _find(self, key: ItemKey) -> Passage | None:
        return self._fresh.get(key) or self._overdue.get(key)

    def _put(self, key: ItemKey, passage: Passage) -> None:
        self._fresh[key] = passage
        if passage.shard is not None:
            self._asked[key.resource, passage.shard] += 1
            self._held[key.resource, passage.shard] += 1

    def _drop(self, key: ItemKey) -> None:
        passage, fresh = self._find(key), key in self._fresh
        if passage is None:
            return
        del (self._fresh if fresh else self._overdue)[key]
        if passage.shard is not None:
            lane = key.resource, passage.shard
            self._held[lane] -= 1
            self._asked[lane] -= fresh
            self._late -= not fresh
            if not self._held[lane]:
                del self._held[lane]

    def _forget_waiting(self, key: ItemKey) -> None:
        for lane in [lane for lane in self._waiting if lane[0] == key.resource and key in self._waiting[lane]]:
            del self._waiting[lane][key]
            if not self._waiting[lane]:
                del self._waiting[lane]
