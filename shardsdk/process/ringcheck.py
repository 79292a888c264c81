"""Whether the ring lists what this shard works on.

The shard labels the children that it makes, and the sharder moves those that the
ring lists.  A resource that is owned and not listed stays behind whenever its
owner moves, and the next shard makes it again.

A shard whose lease no sharder looks at is given nothing, and nothing else tells: no ring of that
name, no sharder, or one that may not read.

The ring is read at the start and every minute, and more often while it is not there; what is missing is told, and does
not end the process.  A ring that does not exist yet, that is being edited, or that may not be read is no
reason to work on nothing; what is wrong comes up only when an object moves.

A ring may list as main what this program does not reconcile, such as that of another program in the same ring: its
objects come here all the same, and wait.  That is told, too; the ring's status says it by what is in shards' leases.

Objects in a namespace that the ring covers and its shards do not watch are given to shards that never see them: nobody
works on them, and nobody gives them away.  That is told as well.

One that assigns its objects otherwise than this process works does end it, before its first reconcile: what
labels say is nothing where ranges do, and working by them beside shards that do not would be worse.  So does one by
ranges that covers other namespaces than when the process started; where names do not tell what it covers, as no ring
should have it, a shard goes on by what it knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from shardsdk.errors import ConfigurationError, NotFound, NotServed, RingChanged, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource
from shardsdk.protocol.ranges import HashBy
from shardsdk.protocol.rings import Ring
from shardsdk.queueing.metrics import Metrics

if TYPE_CHECKING:
    from shardsdk.protocol.namespaces import CoveredNamespaces

log: Final = logger_of(__name__)

#: How often the ring is read: what was made again the other way has two owners until then, and one by ranges, of whose
#: namespaces nobody but its shards judges, has nobody for what it covers since a moment ago.
READ_SECONDS: Final = 60.0
#: How often one is that is not there: who begins before it takes it for one by labels, and has nothing if it is not.
ABSENT_SECONDS: Final = 5.0
#: By how much of that time shards differ: those of a ring by ranges whose namespaces change end, and not all at once if
#: they have started at once.
SPREAD: Final = 0.3
#: How long a lease may be held before a sharder has written its state, and how often it is looked at then.
UNSEEN_SECONDS: Final = 30.0


class RingCheck:
    """Compares the ring called `ring` with what a shard works on; `run` it beside the controllers.

    `mains` are the main resources (none: nobody has said which); `owned` has each resource that their objects
    control, with the main resources that may list it; `by_each`: objects of each of those control some, and what one
    of them does not list stays behind.  `looked_at` says whether a
    sharder has looked at the shard's lease; `None`: nobody knows.  `hash_by` is by
    what the shard works (`None`: labels), `covered` what its ring covers for it (`None`: what is read first);
    `watched` are the namespaces in which it sees main resources (`None`: in all of them).
    """

    def __init__(
        self,
        api: Api,
        ring: str,
        mains: frozenset[GroupResource],
        owned: Mapping[GroupResource, frozenset[GroupResource]],
        *,
        shard: str,
        by_each: bool = False,
        hash_by: HashBy | None = None,
        covered: CoveredNamespaces | None = None,
        watched: frozenset[str] | None = None,
        clock: Clock,
        metrics: Metrics | None = None,
        looked_at: Callable[[], bool] | None = None,
    ) -> None:
        self._api = api
        self._looked_at = looked_at
        self._ring = ring
        self._mains = mains
        self._owned = owned
        self._by_each = by_each
        self._shard = shard
        self._hash_by = hash_by
        self._clock = clock
        self._pause = READ_SECONDS * (1 - SPREAD * crc32(shard.encode()) / 2**32)
        #: Set once the ring was looked at, with whatever result.
        self.looked: Final = asyncio.Event()
        #: The main resources of the ring, each with what it controls; `None`: not known.
        self._listed: dict[GroupResource, frozenset[GroupResource]] | None = None
        #: What a ring by ranges covered first; `None`: it was not read yet.
        self._covered = covered
        self._missing: tuple[str, ...] = ()
        #: Main resources of the ring that this shard does not reconcile.
        self._foreign: frozenset[GroupResource] = frozenset()
        self._watched = watched
        self._unwatched = False
        self._failure = ""
        #: Why names do not tell what the ring covers by now; empty: they do.
        self._untold = ""
        self._exists = True
        if metrics is not None:
            metrics.missing_in_ring(lambda: float(len(self._missing)))
            metrics.unwatched_in_ring(lambda: float(self._unwatched))

    async def run(self) -> None:
        """Look at the ring, and whether anybody looks at the shard, until cancelled.

        Raises: RingChanged when the ring assigns its objects otherwise than this shard works, or covers other
        namespaces than it did; ConfigurationError when nobody can tell at the first look what it covers.
        """
        try:
            async with asyncio.TaskGroup() as looking:
                looking.create_task(self._wait_for_sharder())
                looking.create_task(self._follow_ring())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _wait_for_sharder(self) -> None:
        looked_at, told = self._looked_at, False
        while looked_at is not None:
            await self._clock.sleep(UNSEEN_SECONDS)
            if looked_at():
                if told:
                    log.info("A sharder looks at this shard's lease", extra=self._where())
                return
            if not told:
                why = (
                    "none runs, or it may not read leases or this ring: `kubectl sharding check` tells"
                    if self._exists
                    else f"there is no ClusterRing {self._ring!r}: create it, or correct the name"
                )
                log.warning(
                    "No sharder looks at this shard's lease; it gets no objects", extra={**self._where(), "why": why}
                )
            told = True

    async def _follow_ring(self) -> None:
        while True:
            is_there = await self._look()
            self.looked.set()
            await self._clock.sleep(self._pause if is_there else ABSENT_SECONDS)

    def lists(self, main: GroupResource, owned: GroupResource) -> bool:
        """Whether the ring is known to list `owned` among what objects of `main` control."""
        return self._listed is not None and owned in self._listed.get(main, ())

    async def _look(self) -> bool:
        """Whether there is such a ring, or nobody can tell."""
        try:
            ring = await self._api.get(CLUSTERRINGS, self._ring, model=Ring)
        except ShardingError as error:
            self._tell_unread(error)
            return not isinstance(error, NotFound)
        if not self._exists:
            log.info("The ring is there now", extra=self._where())
        self._failure, self._exists = "", True
        found = ring.hash_by
        if found is not self._hash_by:
            ways = {None: "labels", HashBy.NAMESPACE: "hashes of namespaces", HashBy.UID: "hashes of uids"}
            raise RingChanged(
                f"ring {self._ring!r} assigns its objects by {ways[found]}, and this process works by"
                f" {ways[self._hash_by]}: start it anew if the ring was made after it; an adapter that knows labels"
                " alone needs a ring with assignment Labels"
            )
        if found is not None and ring.covers is not None:  # one that was made again says so as soon as it is looked at
            self._compare_covered(ring.covers)
        self._listed = {
            GroupResource(main.group, main.resource): frozenset(
                GroupResource(each.group, each.resource) for each in main.controlled_resources or ()
            )
            for main in ring.spec.resources or ()
        }
        missing = self._find_missing(self._listed)
        if missing and missing != self._missing:
            log.error(
                "The ring does not list all that this shard works on; what is not listed does not move with its owner",
                extra={**self._where(), "missing": "; ".join(missing)},
            )
        elif self._missing and not missing:
            log.info("The ring lists all that this shard works on", extra=self._where())
        self._missing = missing
        self._compare_mains(frozenset(self._listed))
        self._compare_namespaces(ring.covers)
        return True

    def _tell_unread(self, error: ShardingError) -> None:
        """Say once why the ring cannot be read; that it is gone, where the answer names it."""
        served = not isinstance(error, NotServed)
        absent = served and isinstance(error, NotFound)
        why = str(error)
        if not served:
            why += ": ClusterRings are not served; if their definition was deleted, so was the ring"
        if why != self._failure and absent and self._listed is not None:
            log.error(
                "The ring was deleted; nobody asks this shard to hand its objects over any more",
                extra={
                    **self._where(),
                    "remedy": "stop its shards before those of another ring get the objects, or make it again",
                },
            )
        elif why != self._failure:
            log.warning(
                "The ring could not be read; nobody knows whether it lists what this shard works on",
                extra={**self._where(), "error": why},
            )
        self._failure = why
        if served:
            self._exists = not absent

    def _compare_covered(self, selector: Mapping[str, Any]) -> None:
        """End with a ring that covers other namespaces by now; where names do not tell, what was told before holds."""
        from shardsdk.protocol.namespaces import CoveredNamespaces  # of rings by ranges alone

        try:
            covered = CoveredNamespaces.parse(selector)
        except ConfigurationError as error:
            if self._covered is None:
                raise
            if str(error) != self._untold:
                log.warning(
                    "The ring covers namespaces by labels that shards do not read; this one covers those of before",
                    extra={**self._where(), "error": str(error)},
                )
            self._untold = str(error)
            return
        self._untold = ""
        if self._covered not in (None, covered):
            raise RingChanged(
                f"ring {self._ring!r} covers other namespaces than when this process started: start it anew"
            )
        self._covered = covered

    def _compare_mains(self, listed: frozenset[GroupResource]) -> None:
        """Say it when the ring gives this shard what it does not reconcile; of what it owns `missing` says more."""
        foreign = listed - self._mains - self._owned.keys() if self._mains else frozenset()
        if foreign and foreign != self._foreign:
            log.error(
                "The ring lists main resources that this shard does not work on; what it gets of them waits",
                extra={
                    **self._where(),
                    "resources": ", ".join(map(str, sorted(foreign))),
                    "remedy": "finish the rollout of a program that does, take off the ring what none reconciles, or"
                    " give programs with different main resources a ring each",
                },
            )
        elif self._foreign and not foreign:
            log.info("The ring lists no main resource any more that this shard does not work on", extra=self._where())
        self._foreign = foreign

    def _compare_namespaces(self, selector: Mapping[str, Any] | None) -> None:
        """Say it when the ring covers what this shard does not watch, as far as names tell."""
        if self._watched is None:
            return
        from shardsdk.protocol.namespaces import CoveredNamespaces, select_by_name  # of such shards alone

        try:
            unwatched = not CoveredNamespaces.parse(selector).within(self._watched)
        except ConfigurationError:
            unwatched = False  # it looks at labels of namespaces, which a shard does not read
        if unwatched and not self._unwatched:
            log.error(
                "The ring covers namespaces that this shard does not watch; nobody works on its objects there",
                extra={
                    **self._where(),
                    "watched": sorted(self._watched),
                    "remedy": f"spec.namespaceSelector: {select_by_name(self._watched)}"
                    if self._watched
                    else "its main resources are watched in no common namespace: give each a ring of its own",
                },
            )
        elif self._unwatched and not unwatched:
            log.info("The ring covers no namespace any more that this shard does not watch", extra=self._where())
        self._unwatched = unwatched

    def _find_missing(self, listed: Mapping[GroupResource, frozenset[GroupResource]]) -> tuple[str, ...]:
        mains = [f"resources: {each}" for each in sorted(self._mains - listed.keys())]
        owned = [
            f"controlledResources of {' or '.join(map(str, sorted(owners)))}: {each}"
            for each, among in sorted(self._owned.items())
            for owners in ([[owner] for owner in sorted(among)] if self._by_each else [among])
            if not any(each in listed.get(owner, ()) for owner in owners)
        ]
        return (*mains, *owned)

    def _where(self) -> dict[str, object]:
        return {"ring": self._ring, "shard": self._shard}
