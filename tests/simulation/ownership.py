"""Whose an object is by the label that is stored: asked as a reconcile of it begins, and at each of its writes.

Safety only.  A shard may believe for a moment what it has read; what it may
not is begin while it holds its lease and the object is another's, or have a
write accepted after the object has changed hands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.simulation.storage import Commit
from tests.simulation.vocabulary import RING_OF, Doing

if TYPE_CHECKING:
    from tests.simulation.world import World


#: How often an object may be given to a shard after a change.
MOST_MOVES: Final = 3
#: How much more often a child may be when somebody takes the shard label of its owner off by hand: nobody has the
#: owner then, so it goes past a silent shard, and its children follow it there and back (decisions 0020 and 0038).
THERE_AND_BACK: Final = 2


@dataclass(slots=True)
class Ownership:
    """The stored owners of one run's main objects."""

    world: World
    #: How often an object has changed hands, and how often it had when a reconcile began.
    _changes: dict[str, int] = field(default_factory=dict)
    _begun: dict[int, int] = field(default_factory=dict)
    #: When that was last.
    _changed_at: dict[str, float] = field(default_factory=dict)
    #: How often an object was given to a shard since the ring or its shards last changed.
    _moves: dict[str, int] = field(default_factory=dict)

    def changes(self, uid: str) -> int:
        """How often an object has changed hands."""
        return self._changes.get(uid, 0)

    def changed_at(self, uid: str) -> float:
        """When an object changed hands last; never: since the beginning."""
        return self._changed_at.get(uid, 0.0)

    def began(self, doing: Doing) -> None:
        """A reconcile begins: whose lease it is, whose object it must be."""
        self._begun[doing.number] = self.changes(doing.uid)
        world = self.world
        main = world.index.mains.get(doing.uid)
        if main is None or world.checkers.is_tainted(doing.uid) or not world.checkers.holds(doing):
            return
        label = main.label(RING_OF[doing.resource].shard)
        if label != doing.shard:
            world.checkers.violate("begins what is its own", f"{doing} begins; it is on {label}")

    def on_commit(self, commit: Commit) -> None:
        """A write was accepted: of a reconcile, whose object still has to be its own."""
        before, after = commit.before, commit.after
        ring = RING_OF.get(commit.resource)
        if commit.author.name == "user":
            self._moves.pop(commit.latest.uid, None)
        if ring and before and after and before.label(ring.shard) != after.label(ring.shard):
            self._changes[after.uid] = self._changes.get(after.uid, 0) + 1
            self._changed_at[after.uid] = self.world.now
            if after.label(ring.shard) is not None:
                self._count_move(commit, after.uid)
            elif commit.author.name == "user":
                self._allow_children(after.uid)
        doing = commit.author.doing
        if isinstance(doing, Doing):
            self._check_write(commit, doing)

    def set_back(self, uid: str) -> None:
        """The store was set back, and with it the label of an object to another shard's, or to none."""
        self._changes[uid] = self._changes.get(uid, 0) + 1

    def something_changed(self) -> None:
        """The ring, its namespaces or its shards are others now: objects may move."""
        self._moves.clear()

    def _allow_children(self, owner: str) -> None:
        """Somebody took the shard label of their owner off."""
        for uid in self.world.index.children(owner):
            self._moves[uid] = self._moves.get(uid, 0) - THERE_AND_BACK

    def _count_move(self, commit: Commit, uid: str) -> None:
        """One move for a change, one that was on its way for the change before it, and one that was given up."""
        self._moves[uid] = moves = self._moves.get(uid, 0) + 1
        if moves > MOST_MOVES and not self.world.checkers.is_tainted(uid):
            what = f"{commit.resource.plural} {commit.key} ({uid})"
            self.world.checkers.violate("moves once a change", f"{what} has moved {moves} times since")

    def _check_write(self, commit: Commit, doing: Doing) -> None:
        world = self.world
        main = world.index.mains.get(doing.uid)
        if main is None or world.checkers.is_tainted(doing.uid) or world.checkers.is_excused(doing, commit.author.sent):
            return
        label = main.label(RING_OF[doing.resource].shard)
        changes = self.changes(doing.uid)
        # One that began while its process was excused was not looked at then.
        if label == doing.shard and changes == self._begun.get(doing.number, changes):
            return
        what = f"{doing} writes {commit.resource.plural} {commit.key}"
        since = "" if label != doing.shard else ", and was another's since it began"
        world.checkers.violate("writes what is its own", f"{what}; its object is on {label}{since}")
