"""Reads what `check` judges, as far as the caller may, and changes nothing.

What the webhook would do is asked by a dry run, which the API server does not carry out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from sharder.core.ringspec import AssignBy, ResolvedRing, RingSpec
from sharder.core.webhookconfig import CERTIFICATES_SECRET, WEBHOOK_CONFIGURATIONS
from sharder.failures import leaves
from sharder.kubectl.check.cluster import PERMISSIONS, SHARDER_RULES, named
from sharder.kubectl.check.ranges import read_filtering
from sharder.kubectl.check.rings import RingEvidence
from sharder.kubectl.check.webhooks import Probe, Probed, ServiceEvidence, WebhookEvidence, part_in_force
from sharder.kubectl.cluster import Reader, Ring
from sharder.kubectl.counting import Covers
from sharder.kubectl.leader import LEADERS_LEASES, Leading, Sharder, read_leading
from sharder.kubectl.outcomes import ONE_RESOURCE, Unread
from sharder.kubectl.ranges import SeenRanges
from sharder.kubectl.shards import read_shard_status
from sharder.rbac import rules_on
from shardsdk.errors import ApiError, Forbidden, Invalid, NotFound, ShardingError
from shardsdk.kube.selectors import Selector, absent, equals, exists, join
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LEADER_LABEL, LEADS_SHARDER, LEASE_RING_LABEL
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES, GroupResource, ObjectMeta, PartialObject, Resource
from shardsdk.serving.renewal import CERTIFICATE_KEY
from shardsdk.serving.secretstore import SECRETS
from shardsdk.serving.x509_certificate import Certificate, parse_bundle

REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
SERVICES: Final = Resource("", "v1", "services", "Service")
SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
#: Questions about permissions that are asked at the same time.
QUESTIONS: Final = 16
#: Objects that are read at once in search of one to try the webhook on; as a rule the first will do.
PROBED_OBJECTS: Final = 100

_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_MERGE: Final = "application/merge-patch+json"
#: How an API server names the policy in what it refuses.
_POLICY: Final = "ValidatingAdmissionPolicy"


class _Secret(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, bytes] | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Reads for one check."""

    reader: Reader
    sharder: Sharder
    leading: Leading | None
    probe: bool = True

    # -- one ring --------------------------------------------------------------

    async def of_ring(self, ring: Ring) -> RingEvidence:
        """Everything about a ring but its webhook."""
        overview = await self.reader.overview(ring)
        ranges: SeenRanges | None = None
        filters: bool | None = None
        resolved, namespaces, permissions = None, None, None
        if ring.spec is not None:
            resolved = await self.reader.resolved(ring.spec, ring.covers)
            namespaces = await self.reader.covered(resolved.ring)
            if ring.spec.assign_by is AssignBy.RANGES:
                ranges = await self.reader.ranges(ring.spec, await self.reader.leases(ring.name))
                filters = await read_filtering(self.reader.api)
            else:
                left = await self.reader.removed(ring, resolved.ring)
                names = [each.resource.group_resource for each in (*resolved.ring.subjects(), *left)]
                permissions = await self.permissions([(rule.verb, rule.resource) for rule in rules_on(names)])
        return RingEvidence(
            ring, overview, resolved.ring if resolved is not None else None,
            resolved.missing if resolved is not None else (), namespaces, permissions, self.leading,
            self.sharder.account, ranges, filters, tuple(resolved.unread.values()) if resolved is not None else (),
            tuple(self.reader.gaps.found),
        )  # fmt: skip

    async def permissions(
        self, wanted: Sequence[tuple[str, GroupResource]]
    ) -> dict[tuple[str, GroupResource], bool] | None:
        """What of `wanted` the sharder's ServiceAccount may; None: that could not be asked, and a gap says why."""
        gate, answers = asyncio.Semaphore(QUESTIONS), dict[tuple[str, GroupResource], bool]()

        async def ask(verb: str, resource: GroupResource) -> None:
            async with gate:
                answers[verb, resource] = await self._may(verb, resource)

        try:
            async with asyncio.TaskGroup() as tasks:
                for verb, resource in wanted:
                    tasks.create_task(ask(verb, resource))
        except ExceptionGroup as group:
            if group.split(ONE_RESOURCE)[1] is not None:
                raise
            first = next(leaves(group))
            assert isinstance(first, ShardingError), "all are of ONE_RESOURCE"
            self.reader.gaps.note(PERMISSIONS, first)
            return None
        return {each: answers[each] for each in wanted}

    async def _may(self, verb: str, resource: GroupResource) -> bool:
        namespace, name = self.sharder.account
        plural, _, subresource = resource.resource.partition("/")
        attributes = {"verb": verb, "group": resource.group, "resource": plural, "subresource": subresource}
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        user = f"system:serviceaccount:{namespace}:{name}"
        body = {
            "apiVersion": REVIEWS.api_version,
            "kind": REVIEWS.kind,
            "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
        }
        answer: dict[str, Any] = await self.reader.api.create(REVIEWS, body, model=dict)
        return bool((answer.get("status") or {}).get("allowed"))

    # -- its webhook -----------------------------------------------------------

    async def of_webhook(
        self, listed: ResolvedRing, status: Mapping[str, Any], *, whole: bool = True
    ) -> WebhookEvidence:
        """Everything about a ring's webhook; `whole`: all of the ring's resources could be looked up."""
        resolved = part_in_force(listed, status)
        read, configuration, other, before = True, None, None, len(self.reader.gaps.found)
        try:
            configuration = await self.reader.webhook(resolved.spec.name)
            other = await self.reader.go_webhook(resolved.spec)
        except ONE_RESOURCE as error:
            self.reader.gaps.note("its configuration", error)
            read = False
        webhooks = (configuration or {}).get("webhooks") or [{}]
        client = webhooks[0].get("clientConfig") or {}
        service = await self._service(client["service"]) if client.get("service") else None
        wanted = configuration is not None or not read
        probe = await self._probe(resolved) if wanted else Probe(Probed.NOT_TRIED, "there is no webhook")
        serving = await self._serving()
        failures = tuple(gap for gap in self.reader.gaps.found[before:] if not gap.denied)
        waiting = resolved != listed
        return WebhookEvidence(
            resolved, read, configuration, service, serving, probe, other, whole, failures, waiting=waiting
        )

    async def of_other_sharder(self, ring: RingSpec) -> tuple[str | None, tuple[Unread, ...]]:
        """The webhook configuration that another sharder has made for a ring, and what of that could not be read."""
        other, before = None, len(self.reader.gaps.found)
        try:
            other = await self.reader.go_webhook(ring)
        except ONE_RESOURCE as error:
            self.reader.gaps.note("its configuration", error)
        return other, tuple(gap for gap in self.reader.gaps.found[before:] if not gap.denied)

    async def _service(self, named: Mapping[str, Any]) -> ServiceEvidence | None:
        namespace, name, port = str(named.get("namespace")), str(named.get("name")), named.get("port") or 443
        where, api = f"{namespace}/{name}", self.reader.api
        try:
            service: dict[str, Any] = await api.get(SERVICES, name, namespace, model=dict)
        except NotFound:
            return ServiceEvidence(where, exists=False)
        except ONE_RESOURCE as error:
            self.reader.gaps.note(f"its Service {where}", error)
            return None
        served = any(each.get("port") == port for each in (service.get("spec") or {}).get("ports") or ())
        selector = Selector(labels=equals("kubernetes.io/service-name", name))
        ready = 0
        try:
            async for page in api.pages(SLICES, namespace, selector=selector, model=dict):
                ready += sum(_ready(slice_) for slice_ in page)
        except ONE_RESOURCE as error:
            self.reader.gaps.note(f"the endpoints of its Service {where}", error)
            return ServiceEvidence(where, exists=True, port_served=served)
        return ServiceEvidence(where, exists=True, port_served=served, ready=ready)

    async def _serving(self) -> tuple[Certificate, ...] | None:
        """What the sharder's Secret says that it serves with; None: not its own, or not for us to read."""
        try:
            secret = await self.reader.api.get(SECRETS, CERTIFICATES_SECRET, self.sharder.lease[0], model=_Secret)
            return parse_bundle((secret.data or {}).get(CERTIFICATE_KEY, b""))
        except (ApiError, ValueError):
            return None

    async def _probe(self, resolved: ResolvedRing) -> Probe:
        """Take a shard label off in a dry run: a webhook that works puts it back."""
        if not self.probe:
            return Probe(Probed.NOT_TRIED, "switched off")
        labels = resolved.spec.labels
        selector = Selector(labels=join(exists(labels.shard), absent(labels.drain)))
        covers, unlisted = await self.reader.covers(resolved), ""
        for main in resolved.mains:
            try:
                meta = await self._first(main.resource, selector, covers)
            except Forbidden:
                unlisted = unlisted or f"you may not list {main.resource.group_resource}"
                continue
            except ShardingError as error:
                unlisted = unlisted or f"no object to try it on could be listed: {' '.join(str(error).split())}"
                continue
            if meta is not None:
                return await self._try_on(main.resource, meta, labels.shard)
        return Probe(Probed.NOT_TRIED, unlisted or "no object has a shard label to try it on")

    async def _first(self, resource: Resource, selector: Selector, covers: Covers) -> ObjectMeta | None:
        """One that the ring covers.  Raises: ShardingError."""
        namespace = self.reader.namespace if resource.namespaced else None
        async for page in self.reader.api.pages(resource, namespace, selector=selector, limit=PROBED_OBJECTS):
            for each in page:
                if covers(each.metadata.namespace):
                    return each.metadata
        return None

    async def _try_on(self, resource: Resource, meta: ObjectMeta, label: str) -> Probe:
        what = f"{resource.group_resource} {Key(meta.namespace, meta.name)}"
        path = resource.path(meta.namespace or None, meta.name)
        body = msgspec.json.encode({"metadata": {"labels": {label: None}}})
        headers = {"Content-Type": _MERGE, "Accept": _PARTIAL}
        try:
            raw = await self.reader.api.raw("PATCH", path, query=[("dryRun", "All")], body=body, headers=headers)
            put_back = msgspec.json.decode(raw, type=PartialObject).metadata.label(label) is not None
        except (Forbidden, Invalid) as error:
            if _POLICY in str(error):
                # It judges what the webhook has left: the label was still off.
                return Probe(Probed.SILENT, what)
            return Probe(Probed.NOT_TRIED, f"it takes the right to patch {resource.group_resource}")
        except (ShardingError, msgspec.DecodeError) as error:
            return Probe(Probed.NOT_TRIED, f"the dry run on {what} failed: {' '.join(str(error).split())}")
        return Probe(Probed.ANSWERED if put_back else Probed.SILENT, what)

    # -- all rings ---------------------------------------------------------------

    async def denied(self) -> list[str] | None:
        """What every sharder needs and this one may not; None: that could not be asked."""
        wanted = {
            (verb, GroupResource(group, resource))
            for (group, resource), verbs in SHARDER_RULES.items()
            for verb in verbs
        }
        answers = await self.permissions(sorted(wanted))
        return None if answers is None else [named(*what) for what, may in answers.items() if not may]

    async def shards_of_rings(self) -> dict[str, dict[str, bool]] | None:
        """Shards by the ring that their lease names, and whether each runs; None: leases could not be read."""
        found: dict[str, dict[str, bool]] = {}
        selector, now = Selector(labels=exists(LEASE_RING_LABEL)), self.reader.clock.now()
        try:
            async for page in self.reader.api.pages(LEASES, selector=selector, model=Lease):
                for each in page:
                    shards = found.setdefault(each.metadata.label(LEASE_RING_LABEL) or "", {})
                    shards[f"{each.metadata.namespace}/{each.metadata.name}"] = read_shard_status(each, now).runs
        except ONE_RESOURCE as error:
            self.reader.gaps.note("leases of rings that are gone", error)
            return None
        return found

    async def leaders(self) -> list[str] | None:
        """The leases (NAMESPACE/NAME) by which sharders lead; None: they could not be read.

        Those of versions that do not mark theirs are not found, but for the one that is checked.
        """
        selector, now = Selector(labels=equals(LEADER_LABEL, LEADS_SHARDER)), self.reader.clock.now()
        found = {"/".join(self.sharder.lease)} if self.leading is not None and self.leading.alive else set()
        try:
            async for page in self.reader.api.pages(LEASES, selector=selector, model=Lease):
                named = {f"{each.metadata.namespace}/{each.metadata.name}": each for each in page}
                found |= {where for where, each in named.items() if read_leading(each, where, now).alive}
        except ONE_RESOURCE as error:
            self.reader.gaps.note(LEADERS_LEASES, error)
            return None
        return sorted(found)

    async def webhooks_of_rings(self) -> set[str] | None:
        """Rings that have a webhook configuration; None: those could not be read."""
        selector = Selector(labels=exists(LEASE_RING_LABEL))
        try:
            pages = self.reader.api.pages(WEBHOOK_CONFIGURATIONS, selector=selector)
            return {each.metadata.label(LEASE_RING_LABEL) or "" async for page in pages for each in page}
        except ONE_RESOURCE as error:
            self.reader.gaps.note("webhook configurations of rings that are gone", error)
            return None


def _ready(slice_: Mapping[str, Any]) -> int:
    """Ready endpoints of one EndpointSlice; one that does not say counts as ready, as for kube-proxy."""
    endpoints = slice_.get("endpoints") or ()
    return sum((each.get("conditions") or {}).get("ready") is not False for each in endpoints)
