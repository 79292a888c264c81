"""How a ring assigns its objects, read before a lease of its is sought."""

from __future__ import annotations

import math
from random import Random
from typing import Final, NamedTuple

from shardsdk.errors import ConfigurationError, NotFound, RetryRule, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.server import Access
from shardsdk.logs import logger_of
from shardsdk.protocol.namespaces import CoveredNamespaces, unnamed
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import HashBy
from shardsdk.protocol.rings import Ring

log: Final = logger_of(__name__)

#: For how long a refusal is not believed while the API server does not say that it is ready.
STARTING_SECONDS: Final = 10.0
#: For how long a sharder may not have said what a ring by ranges covers before people are told.
UNTOLD_SECONDS: Final = 30.0
#: The longest pause between two looks for it: nobody has the ring's objects then.
LOOK_SECONDS: Final = 2.0


class ByRanges(NamedTuple):
    """What a ring by ranges says: what it hashes, and of which namespaces' objects."""

    hash_by: HashBy
    namespaces: CoveredNamespaces


async def read_ring(
    api: Api, ring: str, clock: Clock, rng: Random, *, whatever_it_covers: bool = False
) -> ByRanges | None:
    """How the ring assigns by ranges; `None`: it assigns by labels, is not there, or may not be read.

    An API server that has just started knows no rules yet, and no types: what it refuses is asked again.  So is a ring
    by ranges of which nobody has told yet by names what it covers, unless that is all the same.

    Raises: ConfigurationError for a ring that this version cannot work in.
    """
    backoff = Backoff(rng, first_seconds=0.5, max_seconds=10.0)
    refusals = Refusals(api, clock)
    began, told = clock.monotonic(), ""
    by: HashBy | None = None
    while True:
        try:
            found = await api.get(CLUSTERRINGS, ring, model=Ring)
            if (by := found.hash_by) is None:
                return None
            covered = CoveredNamespaces() if whatever_it_covers else _covered(found)
            if covered is not None:
                return ByRanges(by, covered)
            due = found.covers is not None or clock.monotonic() >= began + UNTOLD_SECONDS
            if due and (why := _why_untold(found)) != told:
                told = why
                log.warning(
                    "The ring does not say by name which namespaces it covers; waiting until it does",
                    extra={"ring": ring, "why": why},
                )
            await clock.sleep(backoff.next(most_seconds=LOOK_SECONDS))
        except ConfigurationError:
            raise
        except ShardingError as error:
            # What was read by ranges is not by labels for being refused later; that it is gone may be believed.
            if await refusals.are_final(error) and (by is None or isinstance(error, NotFound)):
                return None
            if refusals.ask_at_once:
                continue
            log.info("The ring could not be read; trying again", extra={"ring": ring, "error": str(error)})
            await clock.sleep(backoff.next())


def _covered(ring: Ring) -> CoveredNamespaces | None:
    """What shards of a ring by ranges go by, who know namespaces by their names alone; `None`: nobody has told them.

    Where the ring itself looks at labels, as none should, that is what it covered before: its sharder leaves that in
    the status, and the shards that run go by it.  One that has ended meanwhile is missed there, and is to be back.
    """
    says = [each for each in (ring.spec.namespace_selector, ring.status.namespace_selector) if each is not None]
    for each in says:
        if unnamed(each) is None:
            return CoveredNamespaces.parse(each)
    return CoveredNamespaces() if not says and ring.is_looked_at else None


def _why_untold(ring: Ring) -> str:
    """Why nobody has told what it covers, and what to do."""
    why = unnamed(ring.covers) if ring.covers is not None else None
    if why is None:
        return "no sharder leads, or it cannot: `kubectl sharding check` tells"
    return f"the ring's namespaceSelector, or its sharder's default, {why}"


class Refusals:
    """Whether to believe what an API server refuses: one that has just started knows no rules yet, and no types.

    It may start at any time, so each failure that is no refusal begins this anew.
    """

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        #: When the first was met of those that no other failure has come between.
        self._began = math.inf
        self._ready = False
        #: It was refused before the server said that it is ready, which is asked once more.
        self.ask_at_once: bool = False

    async def are_final(self, error: ShardingError) -> bool:
        """Whether `error`, with which a request has failed, is a refusal to believe."""
        self.ask_at_once = False
        if getattr(error, "status", 0) != 403 and error.retry is not RetryRule.NEVER:
            self._began, self._ready = math.inf, False
            return False
        self._began = min(self._began, self._clock.monotonic())
        if self._ready or self._clock.monotonic() >= self._began + STARTING_SECONDS:
            return True
        self.ask_at_once = self._ready = await _is_ready(self._api)
        return False


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

    Waits while the API server is away, and until the sharder has said which namespaces a ring by ranges covers, if that
    does not say so itself.  Raises: ConfigurationError for a ring that this version cannot work in.
    """
    return await _read(access, ring, clock or SystemClock(), rng or Random(), whatever_it_covers=False)


async def _read(access: Access, ring: str, clock: Clock, rng: Random, *, whatever_it_covers: bool) -> ByRanges | None:
    from shardsdk.kube.client import Client  # brings aiohttp, which takes a third of a second

    async with Client(access, clock=clock) as api:
        return await read_ring(api, ring, clock, rng, whatever_it_covers=whatever_it_covers)


async def refuse_ranges(access: Access, ring: str, clock: Clock, rng: Random) -> None:
    """Keep a program that knows its objects by labels alone out of a ring by ranges.

    There the sharder names a shard for ranges as soon as it holds its lease, and nobody would work on what lies there.

    Raises: ConfigurationError, with what to do.
    """
    if await _read(access, ring, clock, rng, whatever_it_covers=True) is not None:
        raise ConfigurationError(
            f"ring {ring!r} assigns its objects by ranges of hashes, and this program knows them by labels alone: make"
            " the ring with assignment Labels, or write the shard with shardsdk's Operator or Manager, which take the"
            " way of assigning from the ring, or a loop of its own around a `Share`"
        )
