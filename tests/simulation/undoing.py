"""Somebody's mutating webhook that puts labels back: a GitOps tool or a policy that knows of none but its own.

What it undoes is taken by the API server, and answered with the labels as they were.  Its object stays where it is, and
nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from shardsdk.kube.store import Key
from shardsdk.protocol.objects import Resource
from tests.simulation.storage import Doc, Version
from tests.simulation.vocabulary import PIECES, PLAINS, RING_OF, WORKS

if TYPE_CHECKING:
    from tests.simulation.users import Users


class Whose(Enum):
    """Whose writes are undone."""

    ALL = "everybody's"
    SHARDER = "the sharder's"
    SHARDS = "everybody's but the sharder's"


class Which(Enum):
    """Which labels are put back."""

    BOTH = "both labels"
    SHARD = "the shard's label"
    DRAIN = "the drain label"


@dataclass(frozen=True, slots=True)
class Undo:
    """What is undone of one object."""

    whose: Whose
    which: Which

    def concerns(self, account: str) -> bool:
        """Whether writes of this account are undone."""
        return self.whose is Whose.ALL or (self.whose is Whose.SHARDER) == (account == "sharder")

    def apply(self, resource: Resource, before: Version, doc: Doc) -> Doc:
        """The object with its labels put back."""
        ring = RING_OF[resource]
        labels = dict(doc["metadata"].get("labels") or {})
        names = {Which.BOTH: (ring.shard, ring.drain), Which.SHARD: (ring.shard,), Which.DRAIN: (ring.drain,)}
        for name in names[self.which]:
            was = before.label(name)
            if was is None:
                labels.pop(name, None)
            else:
                labels[name] = was
        return {**doc, "metadata": {**doc["metadata"], "labels": labels}}


class Undoings:
    """Those of one run."""

    def __init__(self) -> None:
        self._undone: dict[tuple[Resource, Key], Undo] = {}

    def begin(self, resource: Resource, key: Key, undo: Undo) -> Callable[[], None]:
        """Have what is written of an object undone until the result is called."""
        self._undone[resource, key] = undo

        def end() -> None:
            self._undone.pop((resource, key), None)

        return end

    def of(self, resource: Resource, key: Key, account: str) -> Undo | None:
        """What is undone of a write."""
        if not self._undone:
            return None
        undo = self._undone.get((resource, key))
        return undo if undo is not None and undo.concerns(account) else None


class Undoing:
    """Carries out the action of that name."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._world = users.world

    def undo_labels(self, rng: Random) -> None:
        """Whoever labels an object is undone for a while."""
        poison, resource = self._world.poison, rng.choice((PIECES, PIECES, WORKS, PLAINS))
        found = self._users.pick(resource, rng)
        if found is None or poison.excuses(found):
            return
        undo = Undo(rng.choice(list(Whose)), rng.choice(list(Which)))
        what = f"{resource.plural} {found.key} ({found.uid})"
        self._world.note(f"a webhook puts back {undo.which.value} of {what} in writes that are {undo.whose.value}")
        family = poison.spread(found)
        end = poison.undoings.begin(resource, found.key, undo)

        def mend() -> None:
            self._world.note(f"labels of {what} stay as they are written again")
            end()
            poison.withdraw(family)

        poison.mend_later(rng.uniform(1.0, 8.0) * self._world.timings.lease, mend)
