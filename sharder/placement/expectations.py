"""What a leader knows of owners that change hands: from what it did itself, never from what it sees.

Does: remember where a family has begun to go, what version its own writes made,
and which of them had no answer.  Each memory has a maximum; what is forgotten
counts as never known, but for versions: while a watch may be behind one that was
forgotten, every owner without one is doubtful.

Refuses: to say where the children of an owner are; only a read does.
"""

from __future__ import annotations

import math
from typing import Final, TypeVar

from shardsdk.cache.objects import is_at_least
from shardsdk.kube.api import SILENCE_SECONDS
from shardsdk.protocol.objects import SlimMeta

T = TypeVar("T")

#: Owners remembered at most, of each kind of memory.
MAX_REMEMBERED: Final = 100_000
#: A watch that shows what is older than our own write lags.  After so long the owner is read: where bookmarks come, a
#: watch that is silent for less is taken for dead; where none do, it may stay behind for minutes.
MAX_LAG_SECONDS: Final = SILENCE_SECONDS + 10.0


class Expectations:
    """By uid of the owner."""

    def __init__(self) -> None:
        self._targets: dict[str, str] = {}
        self._written: dict[str, tuple[str, float]] = {}
        #: When the latest version was written that had to be forgotten.
        self._forgotten_at = -math.inf
        self._unread: dict[str, None] = {}

    def began(self, uid: str, target: str) -> None:
        """Children begin to go to `target`."""
        _remember(self._targets, uid, target)

    def target(self, uid: str) -> str | None:
        """Where the family has begun to go; `None`: it has not begun."""
        return self._targets.get(uid)

    def ended(self, uid: str) -> None:
        """The owner is where it belongs, or gone."""
        self._targets.pop(uid, None)

    def wrote(self, meta: SlimMeta, now: float) -> None:
        """Our own write gave this version to an owner; `now` is monotonic."""
        forgotten = _remember(self._written, meta.uid, (meta.resource_version, now))
        if forgotten is not None:
            self._forgotten_at = max(self._forgotten_at, forgotten[1])

    def is_stale(self, meta: SlimMeta, now: float) -> bool:
        """Whether we have written the owner since; a family begun by that would take children from their new shard.

        What stays older for long came back with a backup of etcd, perhaps: it is doubtful, so it is read first.
        """
        version, written_at = self._written.get(meta.uid, ("", now))
        if not version:
            if now - self._forgotten_at < MAX_LAG_SECONDS:
                self.note_unread(meta.uid)
            return False
        if is_at_least(meta.resource_version, version):
            return False
        if now - written_at < MAX_LAG_SECONDS:
            return True
        self.note_unread(meta.uid)
        return False

    def prune(self, now: float) -> None:
        """Forget versions that no watch is behind any more, and let go of the room that the memories took."""
        self._written = {uid: each for uid, each in self._written.items() if now - each[1] < MAX_LAG_SECONDS}
        self._targets, self._unread = dict(self._targets), dict(self._unread)

    def note_unread(self, uid: str) -> None:
        """Our write had no answer: nobody knows whose the owner is."""
        _remember(self._unread, uid, None)

    def is_unread(self, uid: str) -> bool:
        """Whether there is such a doubt."""
        return uid in self._unread

    def note_read(self, uid: str) -> None:
        """The owner was read after that write could no longer be executed."""
        self._unread.pop(uid, None)


def _remember(memory: dict[str, T], uid: str, value: T) -> T | None:
    """Note it as the latest, instead of the oldest if there are too many, which is returned."""
    memory.pop(uid, None)
    forgotten = memory.pop(next(iter(memory))) if len(memory) >= MAX_REMEMBERED else None
    memory[uid] = value
    return forgotten
