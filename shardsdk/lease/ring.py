"""How a ring assigns its objects, read before a lease of its is sought."""

from __future__ import annotations

from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from shardsdk.errors import ConfigurationError, RetryRule, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.server import Access
from shardsdk.logs import logger_of
from shardsdk.protocol.namespaces import CoveredNamespaces
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import BY_LABELS, HashBy, hash_by_of

log: Final = logger_of(__name__)

#: For how long a refusal is not believed while the API server does not say that it is ready.
STARTING_SECONDS: Final = 10.0


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    assignment: str = BY_LABELS
    hash_by: str = ""
    namespace_selector: dict[str, Any] | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    namespace_selector: dict[str, Any] | None = None


class _Ring(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class ByRanges(NamedTuple):
    """What a ring by ranges says: what it hashes, and of which namespaces' objects."""

    hash_by: HashBy
    namespaces: CoveredNamespaces


async def read_ring(api: Api, ring: str, clock: Clock, rng: Random) -> ByRanges | None:
    """How the ring assigns by ranges; `None`: it assigns by labels, is not there, or may not be read.

    An API server that has just started knows no rules yet, and no types: what it refuses is asked again.

    Raises: ConfigurationError for a ring that this version cannot work in.
    """
    backoff = Backoff(rng, first_seconds=0.5, max_seconds=10.0)
    believed_at, ready = clock.monotonic() + STARTING_SECONDS, False
    while True:
        try:
            found = await api.get(CLUSTERRINGS, ring, model=_Ring)
            spec = found.spec
            by = hash_by_of(spec.assignment, spec.hash_by)
            # Where the spec says nothing the sharder's default holds, which it writes into the status.
            covers = found.status.namespace_selector if spec.namespace_selector is None else spec.namespace_selector
            return None if by is None else ByRanges(by, CoveredNamespaces.parse(covers))
        except ConfigurationError:
            raise
        except ShardingError as error:
            if getattr(error, "status", 0) == 403 or error.retry is RetryRule.NEVER:
                if ready or clock.monotonic() >= believed_at:
                    return None
                # It was refused before this answer, so a server that is ready is asked once more.
                ready = await _is_ready(api)
                if ready:
                    continue
            log.info("The ring could not be read; trying again", extra={"ring": ring, "error": str(error)})
            await clock.sleep(backoff.next())


async def _is_ready(api: Api) -> bool:
    """Whether the API server says so, or nobody can tell."""
    try:
        await api.raw("GET", "/readyz")
    except ShardingError as error:
        # Who may ask is among the rules that a server which has just started does not know.
        return error.retry is RetryRule.NEVER
    return True


async def read_assignment(
    access: Access, ring: str, *, clock: Clock | None = None, rng: Random | None = None
) -> ByRanges | None:
    """How the ring assigns by ranges, before its lease is sought; `None`: by labels, or it is not there yet.

    Waits while the API server is away.  Raises: ConfigurationError for a ring that this version cannot work in.
    """
    from shardsdk.kube.client import Client  # brings aiohttp, which takes a third of a second

    clock = clock or SystemClock()
    async with Client(access, clock=clock) as api:
        return await read_ring(api, ring, clock, rng or Random())


async def refuse_ranges(access: Access, ring: str, clock: Clock, rng: Random) -> None:
    """Keep a program that knows its objects by labels alone out of a ring by ranges.

    There the sharder names a shard for ranges as soon as it holds its lease, and nobody would work on what lies there.

    Raises: ConfigurationError, with what to do.
    """
    if await read_assignment(access, ring, clock=clock, rng=rng) is not None:
        raise ConfigurationError(
            f"ring {ring!r} assigns its objects by ranges of hashes, and this program knows them by labels alone: make"
            " the ring with assignment Labels, or write the shard with shardsdk's Operator or Manager, which take the"
            " way of assigning from the ring, or a loop of its own around a `Share`"
        )
