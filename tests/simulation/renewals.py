"""What is taken from a shard that is gone: under a hold that was renewed after its owner was drained.

Else the shard might be back, and have begun, before it could see that.  A hold is
none that a user tore, but in whoever has not renewed it since; so what is drained
afterwards stays where it is, however long the sharder believes in what it had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.objects import LEASES
from tests.simulation.storage import Commit, Version
from tests.simulation.vocabulary import FAMILY, WORKS

if TYPE_CHECKING:
    from tests.simulation.world import World


class Renewals:
    """Looks at each owner that the sharder moves; `violate(rule, what)` is told of those that it must not."""

    def __init__(self, world: World, violate: Callable[[str, str], None]) -> None:
        self._world = world
        self._violate = violate
        #: When the sharder last wrote that it holds the lease of a shard, and when an owner was drained.
        self._renewed: dict[str, float] = {}
        self._drained: dict[str, float] = {}
        world.storage.on_commit.append(self._on_commit)
        world.storage.on_set_back.append(lambda commits: self._drained.clear())

    def _on_commit(self, commit: Commit) -> None:
        before, after = commit.before, commit.after
        if after is None:
            return
        if commit.resource == LEASES and (after.doc.get("spec") or {}).get("holderIdentity") == SHARDER_HOLDER:
            self._renewed[commit.key.name] = self._world.now
        if commit.resource == WORKS and before is not None:
            self._on_owner(commit.author.name, before, after)

    def _on_owner(self, author: str, before: Version, after: Version) -> None:
        was, drain, shard = before.label(FAMILY.drain), after.label(FAMILY.drain), before.label(FAMILY.shard)
        if was is None and drain is not None:
            self._drained[after.uid] = self._world.now
        if was is None or shard is None or after.label(FAMILY.shard) == shard:
            return
        drained = self._drained.pop(after.uid, None)
        if author in ("user", "setup") or author.rpartition("_")[0] == shard or drained is None:
            return
        if self._renewed.get(shard, 0.0) < drained:
            what = f"{author} takes {WORKS.plural} {after.key} ({after.uid}) from {shard}"
            self._violate(
                "renews after the drain", f"{what}; it was drained at {drained:.3f}, and nothing renewed since"
            )
