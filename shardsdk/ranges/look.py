"""A look: what the API server says, this moment, of ranges that this shard is about to take.

The RingAssignment is read first and the Leases after it, neither from a cache; `parts`
says when a look may begin and what it proves.
"""

from __future__ import annotations

from shardsdk.errors import ConfigurationError, NotFound
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.selectors import Selector, equals
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import RING_ASSIGNMENTS, HashBy, HashRanges, Named, named_by
from shardsdk.ranges.parts import LeftRanges, free_for


async def look(
    api: Api, ring: str, shard: str, by: HashBy, namespace: str | None, left: LeftRanges, clock: Clock
) -> HashRanges:
    """The ranges of `shard` in which no other shard of the ring may be working; of an assignment in doubt, none.

    `namespace` is where the ring's shards have their Leases; `None`: anywhere.  `left` is what this shard's looks
    have seen before, on `clock`.

    Raises: whatever a read or a list may raise; then nothing is known.
    """
    named = await read_named(api, ring, by, (shard, namespace) if namespace else None)
    leases: list[Lease] = []
    ours = Selector(equals(LEASE_RING_LABEL, ring))
    async for page in api.pages(LEASES, namespace, selector=ours, model=Lease, metadata_only=False):
        leases += page
    others = [each for each in leases if each.metadata.name != shard]
    return free_for(shard, named, others, left.read(others, clock.monotonic()))


async def read_named(api: Api, ring: str, by: HashBy, reader: tuple[str, str] | None) -> Named | None:
    """Who is named for which ranges, consistently; `None`: there is no assignment, or none that makes sense by `by`.

    `reader` is the shard that asks, by name and its Lease's namespace.

    Raises: whatever a read may raise.
    """
    try:
        return named_by(await api.get(RING_ASSIGNMENTS, ring, model=dict), by, reader)
    except (NotFound, ConfigurationError):
        return None
