"""How a ring assigns its objects, read before the lease is sought: by labels, or by ranges of hashes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from shardsdk.cache.identity import Identity, ShardIdentity
from shardsdk.errors import ConfigurationError, RetryRule, ShardingError
from shardsdk.kube.backoff import Backoff
from shardsdk.lease.shardlease import ShardLease
from shardsdk.logs import logger_of
from shardsdk.process.world import World
from shardsdk.protocol.namespaces import CoveredNamespaces
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import BY_LABELS, HashBy, hash_by_of
from shardsdk.ranges.identity import RangeIdentity
from shardsdk.reconcile.spec import Work

log: Final = logger_of(__name__)


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    assignment: str = BY_LABELS
    hash_by: str = ""
    namespace_selector: dict[str, Any] | None = None


class _Ring(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class ByRanges(NamedTuple):
    """What a ring by ranges says: what it hashes, and of which namespaces' objects."""

    hash_by: HashBy
    namespaces: CoveredNamespaces


async def read_ranges(world: World, ring: str) -> ByRanges | None:
    """How the ring assigns by ranges; `None`: it assigns by labels, or nobody says.

    A ring that is not there, or may not be read, is taken for one by labels, by which nothing is this shard's
    unless a sharder says so on each object; `RingCheck` looks at it again.

    Raises: ConfigurationError.
    """
    if world.open is None:
        return None
    backoff = Backoff(world.rng, first_seconds=0.5, max_seconds=10.0)
    async with world.client() as api:
        while True:
            try:
                spec = (await api.get(CLUSTERRINGS, ring, model=_Ring)).spec
                by = hash_by_of(spec.assignment, spec.hash_by)
                return None if by is None else ByRanges(by, CoveredNamespaces.parse(spec.namespace_selector))
            except ConfigurationError:
                raise
            except ShardingError as error:
                status = getattr(error, "status", 0)
                if status == 403 or error.retry is RetryRule.NEVER:
                    return None
                log.info("The ring could not be read; trying again", extra={"ring": ring, "error": str(error)})
                await world.clock.sleep(backoff.next())


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
