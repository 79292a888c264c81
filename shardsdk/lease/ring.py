"""How a ring assigns its objects, read before a lease of its is sought."""

from __future__ import annotations

from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from shardsdk.errors import ConfigurationError, RetryRule, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.clock import Clock
from shardsdk.kube.server import Access
from shardsdk.logs import logger_of
from shardsdk.protocol.namespaces import CoveredNamespaces
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import BY_LABELS, HashBy, hash_by_of

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


async def read_ring(api: Api, ring: str, clock: Clock, rng: Random) -> ByRanges | None:
    """How the ring assigns by ranges; `None`: it assigns by labels, is not there, or may not be read.

    Raises: ConfigurationError for a ring that this version cannot work in.
    """
    backoff = Backoff(rng, first_seconds=0.5, max_seconds=10.0)
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
            await clock.sleep(backoff.next())


async def refuse_ranges(access: Access, ring: str, clock: Clock, rng: Random) -> None:
    """Keep a program that knows its objects by labels alone out of a ring by ranges.

    There the sharder names a shard for ranges as soon as it holds its lease, and nobody would work on what lies there.

    Raises: ConfigurationError, with what to do.
    """
    from shardsdk.kube.client import Client  # brings aiohttp, which takes a third of a second

    async with Client(access, clock=clock) as api:
        ranges = await read_ring(api, ring, clock, rng)
    if ranges is not None:
        raise ConfigurationError(
            f"ring {ring!r} assigns its objects by ranges of hashes, and this program knows them by labels alone: make"
            " the ring with assignment Labels, or write the shard with shardsdk's Operator or Manager, which take the"
            " way of assigning from the ring"
        )
