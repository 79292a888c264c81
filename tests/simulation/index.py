"""What is stored, looked up by uid and by owner; kept up with each write, so that no checker has to search."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulation.collecting import owner_uid
from tests.simulation.storage import Commit, Version
from tests.simulation.vocabulary import PIECES, PLAINS, WORKS

#: Nothing is controlled by it.
_NONE: dict[str, Version] = {}


class Index:
    """The main objects and their children as they are stored now."""

    def __init__(self) -> None:
        self.mains: dict[str, Version] = {}
        self.pieces: dict[str, Version] = {}
        self._owner_of: dict[str, str | None] = {}
        self._children: dict[str, dict[str, Version]] = {}

    def children(self, owner: str) -> dict[str, Version]:
        """The children of the object with this uid, by their own."""
        return self._children.get(owner, _NONE)

    def is_drained(self, drain: str, moved: Version) -> bool:
        """Whether it, or what controls it, carries the label `drain`: a shard lets go of that, and does no more."""
        return self.mains.get(owner_uid(moved) or "", moved).label(drain) is not None

    def rebuild(self, commits: Iterable[Commit]) -> None:
        """Begin anew with the objects that these have made."""
        for each in (self.mains, self.pieces, self._owner_of, self._children):
            each.clear()
        for commit in commits:
            self.on_commit(commit)

    def on_commit(self, commit: Commit) -> None:
        """Keep up with one write."""
        resource = commit.resource
        if resource == PIECES:
            self._follow_piece(commit)
        elif resource in (WORKS, PLAINS):
            if commit.after is None:
                self.mains.pop(commit.latest.uid, None)
            else:
                self.mains[commit.after.uid] = commit.after

    def _follow_piece(self, commit: Commit) -> None:
        version = commit.latest
        uid = version.uid
        before = self._owner_of.pop(uid, None)
        if before is not None:
            siblings = self._children[before]
            del siblings[uid]
            if not siblings:
                del self._children[before]
        if commit.after is None:
            self.pieces.pop(uid, None)
            return
        self.pieces[uid] = commit.after
        owner = owner_uid(commit.after)
        self._owner_of[uid] = owner
        if owner is not None:
            self._children.setdefault(owner, {})[uid] = commit.after
