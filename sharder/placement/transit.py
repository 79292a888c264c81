"""Owners between the drain and their next shard: never more than concurrentMoves of one ring.

Does: give a place to each object that is asked back from its shard, which it
keeps until it is assigned, and let the others wait with the shard that works on
them.  What a former leader drained, and what nobody has for any other reason,
holds a place as well: nothing is drained that could not be assigned soon.

How many of the places are used by owners with children depends on how fast they
become free: as many as let an owner be without a shard for a fraction of a second,
on a machine that has nothing else to do and on one that is overloaded.

No shard gets more than its share of the places, nor two of one resource while others
have none, so one that hangs stops the moves of no other.  Nor does a namespace get many
more places than it leaves to others, for there may be a policy by which nothing gets on
there; and a shard that acknowledges nothing in one is asked for no more of it.

An object that has not got on for `OVERDUE_SECONDS` (its reconcile takes long, or some of
its children cannot be written) is overdue: it keeps its place, but others need not wait
until it is faster.  What nobody ever had and cannot be placed gives its place back by then.

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
#: Drains of one shard in one namespace that became overdue, with none acknowledged since: no more go there.
MAX_SILENT: Final = 4

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


class _Waiting:
    """Objects that wait for a place; in each lane the namespaces take turns."""

    def __init__(self) -> None:
        self._number = 0
        self._lanes: dict[Lane, dict[str, dict[ItemKey, SlimObject]]] = {}

    def __len__(self) -> int:
        return self._number

    def lanes(self) -> list[Lane]:
        """Those in which something waits."""
        return list(self._lanes)

    def has_others(self, namespace: str) -> bool:
        """Whether something waits that is in another namespace."""
        return any(each != namespace for namespaces in self._lanes.values() for each in namespaces)

    def put(self, lane: Lane, key: ItemKey, obj: SlimObject) -> None:
        """Have an object wait behind those of its lane and namespace; with what was last seen of it."""
        namespace = self._lanes.setdefault(lane, {}).setdefault(key.namespace, {})
        self._number += key not in namespace
        namespace[key] = obj

    def take(self, lane: Lane, allowed: Callable[[Lane, str], bool]) -> tuple[ItemKey, SlimObject] | None:
        """The next of a lane, of the first of its namespaces that is `allowed`; lane and namespace queue up anew."""
        namespaces = self._lanes[lane]
        found = next((each for each in namespaces if allowed(lane, each)), None)
        if found is None:
            return None
        objects = namespaces.pop(found)
        key = next(iter(objects))
        obj = objects.pop(key)
        self._number -= 1
        if objects:
            namespaces[found] = objects
        del self._lanes[lane]
        if namespaces:
            self._lanes[lane] = namespaces
        return key, obj

    def forget(self, key: ItemKey) -> None:
        """An object waits no longer, whichever shard it was to leave."""
        for lane in [lane for lane in self._lanes if lane[0] == key.resource]:
            namespaces = self._lanes[lane]
            objects = namespaces.get(key.namespace, {})
            if objects.pop(key, None) is None:
                continue
            self._number -= 1
            if not objects:
                del namespaces[key.namespace]
            if not namespaces:
                del self._lanes[lane]

    def drop(self, lane: Lane) -> None:
        """Nothing of a lane waits any longer."""
        self._number -= sum(map(len, self._lanes.pop(lane).values()))


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
        #: By resource, shard (`None`: they were let go) and namespace.
        self._held_in: Counter[tuple[int, str | None, str]] = Counter()
        #: By resource, shard and namespace: how many became overdue since one was acknowledged.
        self._silent: Counter[tuple[int, str, str]] = Counter()
        self._waiting = _Waiting()
        #: Since when those that their shard has let go were not seen to be unassigned.
        self._unseen: dict[ItemKey, float] = {}

    def __len__(self) -> int:
        return len(self._fresh) + len(self._overdue)

    @property
    def waiting(self) -> int:
        """How many objects wait for a place."""
        return len(self._waiting)

    # -- asking for a place ------------------------------------------------

    def enter(self, key: ItemKey, obj: SlimObject, shard: str) -> bool:
        """Whether the object may be drained now; if not, it waits, and `go` is told.

        It has its place for as long as that takes: until `drains` or `leave_unless_begun`.
        """
        passage = self._find(key)
        if passage is None:
            lane = key.resource, shard
            if not (self._has_place(lane) and self._is_fair(lane, key.namespace)):
                self._waiting.put(lane, key, obj)
                return False
            passage = Passage(shard, self._clock.monotonic(), begun=False)
            self._put(key, passage)
        passage.in_hand = not passage.begun
        self._waiting.forget(key)
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
        self._waiting.forget(key)
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
        for lane in [lane for lane in self._waiting.lanes() if lane[1] not in available]:
            self._waiting.drop(lane)
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
                if passage.begun:
                    self._silent[key.resource, passage.shard, key.namespace] += 1
        self.admit()

    # -- inside ------------------------------------------------------------

    def admit(self) -> None:
        """Give the places that are free to those that wait."""
        more = True
        while more:
            more = False
            for lane in self._waiting.lanes():
                if not self._has_place(lane):
                    continue
                taken = self._waiting.take(lane, self._is_fair)
                if taken is None:
                    continue
                key, obj = taken
                self._put(key, Passage(lane[1], self._clock.monotonic(), begun=False))
                self._go(key, obj)
                more = True

    @property
    def _number(self) -> int:
        return max(len(self._shards), 1)

    @property
    def _share(self) -> int:
        """How many of the places one shard gets of one resource."""
        return max(self._places // self._number, 1)

    def _has_place(self, lane: Lane) -> bool:
        if lane[0] not in self._open or not self._ready(lane[0]):
            return False
        number, held = self._number, self._held.get(lane, 0)
        used = int(self._used) if self._paced(lane[0]) else self._places
        if self._asked[lane] >= max(used // number, 1) or held >= self._share:
            return False
        free = self._places - len(self)
        if free <= 0:
            # More lanes hang than there are places: the others' objects go one after the other.
            return self._late >= self._places and not (self._fresh or held)
        without = self._resources * number - len(self._held)
        return len(self._fresh) < max(used, 1) and (not held or free > without)

    def _is_fair(self, lane: Lane, namespace: str) -> bool:
        """Whether a namespace has no more of the places than it leaves free, and its shard seems to answer there.

        Of those of the lane; and of all, with what was let go, while another namespace waits for some.
        """
        (resource, shard), held_in = lane, self._held_in
        if self._silent[resource, shard, namespace] >= MAX_SILENT:
            return False
        if held_in[resource, shard, namespace] > self._share - self._held.get(lane, 0):
            return False
        free = self._places - len(self)
        if free <= 0:  # one goes after the other: beside those that hang, no more are let go than there are places
            free += self._held.total()
        return free > 0 and (held_in[resource, None, namespace] <= free or not self._waiting.has_others(namespace))

    def _adapt(self, unowned_seconds: float) -> None:
        if unowned_seconds > SOON_SECONDS:
            self._used = max(self._used - STEP_DOWN, min(LEAST_PLACES, self._places))
        else:
            self._used = min(self._used + STEP_UP / self._used, self._places)

    def _find(self, key: ItemKey) -> Passage | None:
        return self._fresh.get(key) or self._overdue.get(key)

    def _put(self, key: ItemKey, passage: Passage) -> None:
        self._fresh[key] = passage
        self._held_in[key.resource, passage.shard, key.namespace] += 1
        if passage.shard is not None:
            self._asked[key.resource, passage.shard] += 1
            self._held[key.resource, passage.shard] += 1

    def _drop(self, key: ItemKey) -> None:
        passage, fresh = self._find(key), key in self._fresh
        if passage is None:
            return
        del (self._fresh if fresh else self._overdue)[key]
        among = key.resource, passage.shard, key.namespace
        self._held_in[among] -= 1
        if not self._held_in[among]:
            del self._held_in[among]
        if passage.shard is not None:
            lane = key.resource, passage.shard
            if passage.begun:
                self._silent.pop((*lane, key.namespace), None)
            self._held[lane] -= 1
            self._asked[lane] -= fresh
            self._late -= not fresh
            if not self._held[lane]:
                del self._held[lane]
