"""Asks the API server what the commands need, as far as the caller may know it.

Rings, leases, namespaces and webhook configurations are read; the metadata of
objects is streamed past a census, and not kept.  What is forbidden, or fails, leaves
a gap, and the rest is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from sharder.core.membership import Membership
from sharder.core.ringspec import (
    AssignBy,
    InvalidRing,
    ResolvedMain,
    ResolvedRing,
    RingSpec,
    Role,
    Subject,
    as_shards_know,
    parse_ring,
    placed_resources,
    resolve,
    workable,
)
from sharder.core.selectors import LabelSelector, parse_selector
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS, go_webhook_name, webhook_name
from sharder.kubectl.counting import Census, Covers, Tally
from sharder.kubectl.outcomes import ONE_RESOURCE, Gaps, Unread
from sharder.kubectl.ranges import RangeCensus, SeenRanges
from sharder.kubectl.selecting import by_name_alone, describe_selector
from sharder.kubectl.shards import ShardStatus, read_membership, read_shard_status
from sharder.kubectl.status.overview import Overview, ResourceCount, count_resource, read_conditions, uncounted_resource
from sharder.manifests import status_of
from shardsdk.errors import ConfigurationError, InvalidRingName, NotFound, ShardingError, StreamInterrupted
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.selectors import Selector, equals, exists
from shardsdk.protocol.labels import LEASE_RING_LABEL, parse_ring_name
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import (
    CLUSTERRINGS,
    LEASES,
    NAMESPACES,
    GroupResource,
    PartialObject,
    Resource,
    SlimObject,
)
from shardsdk.protocol.ranges import RING_ASSIGNMENTS, named_by

#: Resources counted at the same time; the API server should hardly notice.
STREAMS: Final = 3
#: Times that a stream which broke is begun again.
ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring as read: its object, and the spec or (`invalid`) why it cannot be used.

    `read` False: the object itself may not be read; only its name is known.
    """

    name: str
    raw: Mapping[str, Any]
    spec: RingSpec | None = None
    invalid: InvalidRing | None = None
    read: bool = True

    @property
    def status(self) -> Mapping[str, Any]:
        """`status`, or an empty one."""
        return status_of(self.raw)

    @property
    def up_to_date(self) -> bool:
        """Whether the sharder has seen the present spec."""
        generation = (self.raw.get("metadata") or {}).get("generation")
        return self.status.get("observedGeneration") == generation

    @property
    def covers(self) -> object:
        """The namespaces that the sharder says it covers by the present spec; None: it does not (one of before)."""
        return self.status.get("namespaceSelector") if self.up_to_date else None


@dataclass(frozen=True, slots=True)
class SeenLeases:
    """A ring's leases, or None; `whole`: all of them, so that it is known which shards there are."""

    leases: list[Lease] | None
    whole: bool


@dataclass(frozen=True, slots=True)
class Resolved:
    """A ring with the resources that are served, those that are not (`missing`), and those of which nobody can tell."""

    ring: ResolvedRing
    missing: tuple[GroupResource, ...] = ()
    unread: Mapping[GroupResource, Unread] = field(default_factory=dict)

    def uncounted(self) -> Iterator[ResourceCount]:
        """The resources whose objects cannot be told from others': without its main resource a child has no key."""
        for main in self.ring.spec.resources:
            if main.resource in self.unread:
                yield uncounted_resource(main.resource, Role.MAIN)
            for name in main.controlled:
                if name in self.unread or (main.resource in self.unread and name not in self.missing):
                    yield uncounted_resource(name, Role.CONTROLLED)


@dataclass(slots=True)
class Reader:
    """Reads for one command; `namespace`: leases and objects of this one only. What cannot be read goes to `gaps`."""

    api: Api
    clock: Clock
    namespace: str | None = None
    gaps: Gaps = field(default_factory=Gaps)
    _namespaces: Mapping[str, Mapping[str, str]] | None = None
    _asked_namespaces: bool = False

    async def rings(self, name: str | None = None) -> list[Ring] | None:
        """The ring called `name`, or all; None: they cannot be read.  Raises: NotFound for one that is not there."""
        try:
            if name is not None:
                return [read_ring(await self.api.get(CLUSTERRINGS, name, model=dict))]
            found = [read_ring(raw) async for page in self.api.pages(CLUSTERRINGS, model=dict) for raw in page]
        except NotFound:
            raise
        except ONE_RESOURCE as error:
            self.gaps.note("clusterrings" if name is None else f"clusterring {name}", error)
            return None
        return sorted(found, key=lambda ring: ring.name)

    async def leases(self, ring: str) -> SeenLeases:
        """The leases of a ring's shards; none are read of a ring with a name that cannot be used."""
        if name_problem(ring):
            return SeenLeases(None, whole=False)
        selector = Selector(labels=equals(LEASE_RING_LABEL, ring))
        try:
            return SeenLeases(await self._leases(selector, None), whole=True)
        except ONE_RESOURCE as error:
            self.gaps.note("leases of all namespaces", error)
        if self.namespace is None:
            return SeenLeases(None, whole=False)
        what = f"leases of namespace {self.namespace}"
        return SeenLeases(await self.gaps.fill(what, self._leases(selector, self.namespace)), whole=False)

    async def _leases(self, selector: Selector, namespace: str | None) -> list[Lease]:
        pages = self.api.pages(LEASES, namespace, selector=selector, model=Lease)
        return [lease async for page in pages for lease in page]

    async def ranges(self, ring: RingSpec, leases: SeenLeases) -> SeenRanges:
        """The RingAssignment of a ring by ranges, and what its shards' leases hold."""
        held, now = leases.leases if leases.whole else None, self.clock.now()
        try:
            found: dict[str, Any] = await self.api.get(RING_ASSIGNMENTS, ring.name, model=dict)
            conditions = read_conditions(status_of(found), ages_of(status_of(found), now))
            return SeenRanges.of(ring.hash_by, named_by(found, ring.hash_by), held, conditions=conditions, now=now)
        except NotFound:
            return SeenRanges.of(ring.hash_by, None, held, f"RingAssignment {ring.name} is not there")
        except ConfigurationError as error:
            return SeenRanges.of(ring.hash_by, None, held, f"RingAssignment {ring.name} makes no sense: {error}")
        except ONE_RESOURCE as error:
            self.gaps.note(f"ringassignment {ring.name}", error)
            return SeenRanges.of(ring.hash_by, None, held)

    async def webhook(self, ring: str) -> Mapping[str, Any] | None:
        """The ring's webhook configuration; None: there is none.  Raises: ApiError."""
        try:
            found: dict[str, Any] = await self.api.get(WEBHOOK_CONFIGURATIONS, webhook_name(ring), model=dict)
        except NotFound:
            return None
        return found

    async def go_webhook(self, ring: RingSpec) -> str | None:
        """Name of the webhook configuration that the Go sharder made for the ring; None: it made none."""
        try:
            found = await self.api.get(WEBHOOK_CONFIGURATIONS, go_webhook_name(ring.labels))
        except NotFound:
            return None
        return found.metadata.name

    async def resolved(self, spec: RingSpec, covers: object) -> Resolved:
        """The ring with what the API server serves of it, and what it does not, or cannot tell; `covers`: of `Ring`."""
        served, unread = await self._discover(spec.named)
        default = None if spec.namespace_selector is not None else await self._default_namespaces(spec.name, covers)
        ring, missing = resolve(spec, served, default)
        missing = tuple(name for name in missing if name not in unread)
        return Resolved(as_shards_know(ring, covers), missing, unread)

    async def _discover(
        self, names: Iterable[GroupResource]
    ) -> tuple[dict[GroupResource, Resource | None], dict[GroupResource, Unread]]:
        """Each as it is served (None: it is not), and apart from those the ones that it could not be asked of."""
        served: dict[GroupResource, Resource | None] = {}
        unread: dict[GroupResource, Unread] = {}
        for name in sorted(set(names)):
            try:
                served[name] = await self.api.discover(name.group, name.resource)
            except ONE_RESOURCE as error:
                unread[name] = self.gaps.note(str(name), error)
        return served, unread

    async def _default_namespaces(self, ring: str, said: object) -> LabelSelector | None:
        """What this sharder takes for a ring that does not say: as `said`, else as the ring's webhook shows it."""
        if said is None:
            try:
                webhooks = (await self.webhook(ring) or {}).get("webhooks") or [{}]
            except ShardingError:
                return None
            said = webhooks[0].get("namespaceSelector")
        selector, problems = parse_selector(said, "namespaceSelector")
        return None if problems else selector

    async def covers(self, ring: ResolvedRing) -> Covers:
        """What says whether a namespace belongs to the ring."""
        if by_name_alone(ring.namespace_selector):
            return lambda namespace: ring.in_scope(namespace)
        namespaces = await self._all_namespaces()

        def covers(namespace: str) -> bool | None:
            if not namespace:
                return True
            labels = namespaces.get(namespace) if namespaces is not None else None
            return None if labels is None else ring.in_scope(namespace, labels)

        return covers

    async def covered(self, ring: ResolvedRing) -> list[str] | None:
        """The namespaces that belong to the ring; None: they cannot be read."""
        namespaces = await self._all_namespaces()
        if namespaces is None:
            return None
        return sorted(name for name, labels in namespaces.items() if ring.in_scope(name, labels))

    async def _all_namespaces(self) -> Mapping[str, Mapping[str, str]] | None:
        if not self._asked_namespaces:
            self._asked_namespaces = True
            self._namespaces = await self.gaps.fill("namespaces", self._read_namespaces())
        return self._namespaces

    async def _read_namespaces(self) -> Mapping[str, Mapping[str, str]]:
        pages = self.api.pages(NAMESPACES, model=PartialObject)
        return {each.metadata.name: each.metadata.labels or {} async for page in pages for each in page}

    # -- objects -------------------------------------------------------------

    async def count(
        self, ring: Ring, resolved: ResolvedRing, membership: Membership | None, ranges: SeenRanges | None = None
    ) -> tuple[ResourceCount, ...]:
        """Count every object of a ring, main resources before those that they control; of one by ranges by `ranges`."""
        labels, covers = resolved.spec.labels, await self.covers(resolved)
        census = RangeCensus(labels, membership, covers, ranges) if ranges else Census(labels, membership, covers)
        gate, counted = asyncio.Semaphore(STREAMS), dict[GroupResource, ResourceCount]()

        async def count(subject: Subject, *, removed: bool = False) -> bool:
            async with gate:
                made = await self._count(census, subject, removed=removed)
            counted[subject.resource.group_resource] = made
            return made.counted

        async def count_main(main: ResolvedMain) -> None:
            known = await count(Subject(Role.MAIN, main.resource, main))
            for resource in main.controlled:
                await count(Subject(Role.CONTROLLED, resource, main))
                if not known:
                    # Where they belong depends on what could not be read.
                    name = resource.group_resource
                    counted[name] = replace(counted[name], misplaced=None)

        async with asyncio.TaskGroup() as tasks:
            for main in resolved.mains:
                tasks.create_task(count_main(main))
            for subject in await self.removed(ring, resolved):
                tasks.create_task(count(subject, removed=True))
        order = [subject.resource.group_resource for subject in resolved.subjects()]
        return tuple(counted[name] for name in [*order, *sorted(counted.keys() - set(order))])

    async def _count(self, census: Census | RangeCensus, subject: Subject, *, removed: bool) -> ResourceCount:
        resource = subject.resource
        namespace = self.namespace if resource.namespaced else None
        selector = Selector(labels=exists(census.labels.shard)) if removed else Selector()
        what = str(resource.group_resource) + (f" in namespace {namespace}" if namespace else "")
        for attempt in range(1, ATTEMPTS + 1):
            tally = Tally(subject, removed)
            try:
                async for batch in self._stream(resource, namespace, selector):
                    for each in batch:
                        census.add(tally, each.metadata)
            except StreamInterrupted as error:
                if attempt < ATTEMPTS:
                    continue
                self.gaps.note(what, error)
            except ONE_RESOURCE as error:
                self.gaps.note(what, error)
            else:
                return count_resource(tally, judged=census.membership is not None, overfull=census.overfull)
        return uncounted_resource(resource.group_resource, subject.role)

    def _stream(self, resource: Resource, namespace: str | None, selector: Selector) -> AsyncIterator[list[SlimObject]]:
        return self.api.stream(resource, namespace, selector=selector, model=SlimObject, metadata_only=True)

    async def removed(self, ring: Ring, resolved: ResolvedRing) -> list[Subject]:
        """Resources that the ring lists no longer and whose objects may still carry its labels."""
        listed = resolved.spec.named
        placed = {name: controlled for name, controlled in placed_resources(ring.status) if name not in listed}
        served, _ = await self._discover(placed)
        return [
            Subject(Role.CONTROLLED if placed[name] else Role.MAIN, resource, ResolvedMain(resource))
            for name, found in served.items()
            if (resource := workable(found)) is not None
        ]

    # -- a whole ring --------------------------------------------------------

    async def overview(self, ring: Ring) -> Overview:
        """Everything about a ring that `status` shows, as it is now."""
        now = self.clock.now()
        leases = await self.leases(ring.name)
        shard_statuses = [read_shard_status(lease, now) for lease in leases.leases or ()]
        membership = read_membership(leases.leases or (), shard_statuses) if leases.whole else None
        counts: tuple[ResourceCount, ...] = ()
        ranges: SeenRanges | None = None
        problems: tuple[str, ...] = ()
        scope = ""
        if ring.invalid is not None:
            problems = tuple(str(problem) for problem in ring.invalid.problems)
        elif wrong := name_problem(ring.name):
            problems = (wrong,)
        if ring.spec is not None:
            resolved = await self.resolved(ring.spec, ring.covers)
            problems = tuple(f"the API server does not serve {name}" for name in resolved.missing)
            scope = describe_selector(resolved.ring.namespace_selector)
            if ring.spec.assign_by is AssignBy.RANGES:
                ranges = await self.ranges(ring.spec, leases)
                problems += (ranges.problem,) if ranges.problem else ()
            if ranges is None or (ranges.named is not None and ranges.held is not None):
                counts = await self.count(ring, resolved.ring, membership, ranges)
            counts += tuple(resolved.uncounted())
        return Overview(
            name=ring.name,
            read=ring.read,
            conditions=read_conditions(ring.status, ages_of(ring.status, now)),
            up_to_date=ring.up_to_date if ring.read else None,
            problems=problems,
            scope=scope,
            shard_statuses=None if leases.leases is None else sort_shard_statuses(shard_statuses),
            membership=membership,
            resources=counts,
            unread=tuple(self.gaps.found),
            namespace=self.namespace,
            ranges=ranges.view() if ranges is not None else None,
            assign_by=ring.spec.assign_by if ring.spec is not None else None,
        )


def read_ring(raw: Mapping[str, Any]) -> Ring:
    """A ring from its object; one that cannot be used says why."""
    name = str((raw.get("metadata") or {}).get("name") or "")
    try:
        return Ring(name, raw, spec=parse_ring(raw))
    except InvalidRing as error:
        return Ring(name, raw, invalid=error)


def name_problem(ring: str) -> str:
    """Why nothing can be labelled with a ring's name (older CRDs, and the Go sharder's, let it pass); empty: it can."""
    try:
        parse_ring_name(ring)
    except InvalidRingName as error:
        return str(error)
    return ""


def ages_of(status: Mapping[str, Any], now: datetime) -> dict[str, float]:
    """Seconds since each condition last changed."""
    ages = {}
    listed = status.get("conditions")
    for each in listed if isinstance(listed, list) else ():
        try:
            moment = datetime.fromisoformat(str(each["lastTransitionTime"]))
        except (KeyError, TypeError, ValueError):
            continue
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        ages[str(each.get("type"))] = max((now - aware).total_seconds(), 0.0)
    return ages


def sort_shard_statuses(shard_statuses: Iterable[ShardStatus]) -> tuple[ShardStatus, ...]:
    """By name, as people look for them."""
    return tuple(sorted(shard_statuses, key=lambda each: (each.name, each.namespace)))
