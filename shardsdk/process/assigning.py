"""How a ring assigns its objects, read before the lease is sought: by labels, or by ranges of hashes."""

from __future__ import annotations

from shardsdk.cache.identity import Identity, ShardIdentity
from shardsdk.errors import ConfigurationError
from shardsdk.lease.ring import ByRanges, read_ring
from shardsdk.lease.shardlease import ShardLease
from shardsdk.process.world import World
from shardsdk.protocol.ranges import HashBy
from shardsdk.ranges.identity import RangeIdentity
from shardsdk.reconcile.spec import Work


async def read_ranges(world: World, ring: str) -> ByRanges | None:
    """How the ring assigns by ranges; `None`: it assigns by labels, or nobody says.

    A ring that is not there, or may not be read, is taken for one by labels, by which nothing is this shard's
    unless a sharder says so on each object; `RingCheck` looks at it again.

    Raises: ConfigurationError.
    """
    if world.open is None:
        return None
    async with world.client() as api:
        return await read_ring(api, ring, world.clock, world.rng)


def identify(lease: ShardLease, ranges: ByRanges | None, work: Work) -> Identity:
    """Who this shard is to its objects.  Raises: ConfigurationError for work that such a ring cannot share."""
    if ranges is None:
        return ShardIdentity(lease.ring, lease.name)
    by = ranges.hash_by
    for spec in work.specs:
        main = spec.main.resource
        if by is HashBy.NAMESPACE and not main.namespaced:
            raise ConfigurationError(
                f"{main.plural} have no namespace, and the ring {lease.ring.ring!r} hashes namespaces: make a ring with"
                " hashBy UID"
            )
        if by is HashBy.UID and spec.children:
            raise ConfigurationError(
                f"controller {spec.title!r} owns {spec.children[0].resource.plural}, and the ring {lease.ring.ring!r}"
                " hashes uids, by which a child lies elsewhere than its owner: make a ring with hashBy Namespace"
            )
    return RangeIdentity(lease.ring, lease.name, by, ranges.namespaces)
