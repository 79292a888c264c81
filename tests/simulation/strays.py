"""Children that came back with an old label, as a backup tool restores them: where they may be, and for how long.

No informer shows what is labelled with a living shard: such a child is found by the next resync, or follows its owner
when that changes hands next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.simulation.storage import Version
from tests.simulation.vocabulary import FAMILY

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How long a child that came while its owner was moved, so that the mover had not read it, may take to follow: there is
#: a resync behind each move. Behind an assignment of what nobody had there is none; so soon it has to come, then.
NEWS_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Stray:
    """Whose child it is, how often that owner had changed hands by then, whether it had a shard, and when that was."""

    owner: str
    changes: int
    owned: bool
    came: float


@dataclass(slots=True)
class Strays:
    """Those of one run, by name."""

    world: World
    _known: dict[str, _Stray] = field(default_factory=dict)

    def come(self, piece: str, owner: str) -> None:
        """A child comes back with an old label; it is where it should be after its owner's next handover."""
        main = self.world.index.mains.get(owner)
        owned = main is not None and main.label(FAMILY.shard) is not None
        self._known[piece] = _Stray(owner, self.world.ownership.changes(owner), owned, self.world.now)

    def stored(self, piece: str) -> None:
        """An object of this name was made: if it is such a child, it came now."""
        if piece in self._known:
            self.come(piece, self._known[piece].owner)

    def set_back(self) -> None:
        """They may be there again, wherever their owners are: the store was set back."""
        for piece in list(self._known):
            self.stored(piece)

    def excuse(self, child: Version, owner: str | None) -> bool:
        """Whether this is one whose owner has not changed hands since (or amid that)."""
        stray = self._known.get(child.key.name)
        if stray is None or owner is None or stray.owner != owner:
            return False
        since = self.world.ownership.changes(owner) - stray.changes
        until = self.world.now if stray.owned else self.world.ownership.changed_at(owner)
        return since == 0 or (since == 1 and until - stray.came < NEWS_SECONDS)
