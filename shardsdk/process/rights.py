"""Whether a process may read what it is to work on, and whether there is such a thing, asked before it is given any.

Whoever holds a shard's lease is given objects, and whoever leads keeps others from leading.  A
process that may list nothing would have them and reconcile none, so it stands by until its
role, its names or the cluster are mended, and says what lacks: the rule, or the right plural.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Final, NamedTuple

from shardsdk.errors import ShardingError
from shardsdk.kube.answers import Target
from shardsdk.kube.api import Api
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.clock import Clock
from shardsdk.kube.served import find_unserved
from shardsdk.lease.shardlease import ShardLease
from shardsdk.logs import logger_of
from shardsdk.process.workload import Workload
from shardsdk.process.world import World
from shardsdk.protocol.objects import LEASES, GroupResource, Resource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS
from shardsdk.reconcile.caches import Caches, CacheSettings, namespaces_of
from shardsdk.reconcile.spec import Work

log: Final = logger_of(__name__)

#: What a cache does.
VERBS: Final = ("list", "watch")
#: The longest pause between two looks; a role that was mended is noticed after so long at most.
MAX_PAUSE_SECONDS: Final = 10.0
NOT_ASKED: Final = "whether this process may read what it works on is not known yet"


class Right(NamedTuple):
    """To do this to a resource's objects in one namespace (`None`: in all of them), or to the one called `name`."""

    verb: str
    resource: Resource
    namespace: str | None
    name: str | None = None


class ReadingRights:
    """The rights that a process cannot do without to read what it works on."""

    def __init__(self, wanted: Iterable[Right], *, clock: Clock, rng: Random) -> None:
        self._wanted = list(wanted)
        self._resources = list(dict.fromkeys(each.resource for each in self._wanted))
        self._clock = clock
        self._rng = rng
        #: What lacks, in a sentence; `None`: nothing.
        self.lacking: str | None = NOT_ASKED

    async def wait(self, connect: Callable[[None], AbstractAsyncContextManager[Api]] | None) -> None:
        """Return when nothing lacks that the API server says of; with no way to ask, at once."""
        if connect is not None:
            async with connect(None) as api:
                await self._wait(api)
        self.lacking = None

    async def _wait(self, api: Api) -> None:
        backoff = Backoff(self._rng, first_seconds=1.0, max_seconds=MAX_PAUSE_SECONDS)
        told = ""
        while lacking := [*await find_unserved(api, self._resources), *await self._missing_rules(api)]:
            words = "; ".join(lacking)
            if words != told:
                log.error(
                    "What this process works on cannot be read; it waits, and takes no work from others",
                    extra={"missing": words},
                )
            self.lacking = told = words
            await self._clock.sleep(backoff.next())
        if told:
            log.info("What this process works on can be read now")

    async def _missing_rules(self, api: Api) -> list[str]:
        asked = await asyncio.gather(*(_may(api, each) for each in self._wanted))
        return [
            Target(verb, resource.group, resource.plural, namespace, name).missing_rule
            for (verb, resource, namespace, name), may in zip(self._wanted, asked, strict=True)
            if not may
        ]


async def _may(api: Api, right: Right) -> bool:
    try:
        return await api.allowed(right.verb, right.resource.group_resource, namespace=right.namespace, name=right.name)
    except ShardingError:
        return True  # nobody knows: the caches will say


def rights_of(
    work: Work, settings: Mapping[GroupResource, CacheSettings], namespaces: Sequence[str], world: World
) -> ReadingRights:
    """The rights that the caches of `work` need, in `namespaces` unless a resource has `settings` of its own."""
    sources = dict.fromkeys(source.resource for spec in work.specs for source in spec.resources)
    wanted = [
        Right(verb, resource, namespace)
        for resource in sources
        for namespace in (namespaces_of(resource, settings, namespaces) or (None,))
        for verb in VERBS
    ]
    return ReadingRights(wanted, clock=world.clock, rng=world.rng)


def rights_by_ranges(lease: ShardLease, world: World) -> ReadingRights:
    """The rights by which a shard learns of its ranges: whoever is named and does not know it has nobody work there."""
    wanted = [Right(verb, RING_ASSIGNMENTS, None, lease.ring.ring) for verb in VERBS]
    return ReadingRights([*wanted, Right("list", LEASES, lease.namespace)], clock=world.clock, rng=world.rng)


def check_caches(
    rights: Sequence[ReadingRights], shared: Caches | None, workload: Workload | None, *, sharded: bool, unread: bool
) -> str | None:
    """Why a manager cannot see what it works on yet, or with `unread` any more; `None`: it can."""
    asked = [each.lacking for each in rights] or ([NOT_ASKED] if sharded else [])
    if lacking := next(filter(None, asked), None):
        return lacking
    unseen = None if shared is None else shared.check_synced(unread=unread)
    if unseen is not None or not sharded:
        return unseen
    return "not started" if workload is None else workload.check_synced(unread=unread)
