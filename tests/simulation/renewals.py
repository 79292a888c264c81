"""What is taken from a shard that is gone: under a hold that was renewed after its owner was drained.

Else the shard might be back, and have begun, before it could see that.  A hold is
none that a user tore, but in whoever has not renewed it since; so what is drained
afterwards stays where it is, however long the sharder believes in what it had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shardsdk.kube.store import Key
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
        #: When the sharder last wrote that it holds a lease, and when an owner was drained.
        self._renewed: dict[Key, float] = {}
        self._drained: dict[str, float] = {}
        world.storage.on_commit.append(self._on_commit)
        world.storage.on_set_back.append(lambda commits: self._drained.clear())

    def _on_commit(self, commit: Commit) -> None:
        before, after = commit.before, commit.after
        if after is None:
            return
        if commit.resource == LEASES and _is_the_sharders(after):
            self._renewed[commit.key] = self._world.now
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
        if after.label(FAMILY.shard) is None:
            return  # it has left the ring, and is nobody's
        if self._renewed_at(shard) < drained:
            what = f"{author} takes {WORKS.plural} {after.key} ({after.uid}) from {shard}"
            self._violate(
                "renews after the drain", f"{what}; it was drained at {drained:.3f}, and nothing renewed since"
            )

    def _renewed_at(self, shard: str) -> float:
        """When the hold was last renewed under which objects of a shard move: on its lease, where the sharder has that.

        Of a shard whose lease it does not know it may hold one that it made in another namespace.
        """
        own = Key(self._world.namespace_of_shard(shard), shard)
        lease = self._world.storage.get(LEASES, own)
        if lease is not None and _is_the_sharders(lease):
            return self._renewed.get(own, 0.0)
        return max((at for key, at in self._renewed.items() if key.name == shard), default=0.0)


def _is_the_sharders(lease: Version) -> bool:
    return (lease.doc.get("spec") or {}).get("holderIdentity") == SHARDER_HOLDER
