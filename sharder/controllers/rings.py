"""Leader's part: what a ring needs around it, and what its people see.

Does: check permissions, keep the ring's webhook configuration as it should be,
remember which resources hold labels of the ring (so that one taken off the list
is cleaned up, whoever leads then), and write status, conditions and Events.

Refuses: to place or to judge; it shows what the others found.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

from sharder.controllers.placement import Summary, retire
from sharder.controllers.registry import Change, Registry, RingEntry
from sharder.controllers.seen import Placed
from sharder.controllers.selections import Kind
from sharder.core.ringspec import ResolvedRing, Role
from sharder.core.status import Health, MissingRule, Unsettled, changed_conditions, conditions_of, render_status
from sharder.core.webhookconfig import render_webhook, webhook_name
from shardsdk.errors import FenceClosed, Forbidden, NotFound, Retry, ShardingError
from shardsdk.kube.api import Api, Fence, PatchKind
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, Reflector
from shardsdk.kube.selectors import Selector, exists
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource, PartialObject, Resource
from shardsdk.runtime.events import EventType, Regarding
from shardsdk.runtime.queue import Priority, RateLimit, WorkQueue

log = logging.getLogger(__name__)

WEBHOOK_CONFIGURATIONS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration",
    namespaced=False,
)  # fmt: skip
#: What the sharder needs on each resource of a ring.
VERBS: Final = ("list", "watch", "patch")
#: How long granted permissions are believed, and missing ones before they are asked for again.
GRANTED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 3.0
#: A drain that waits longer than this shows as a condition and an Event.
DRAIN_ALARM_SECONDS: Final = 60.0
#: Rings worked on side by side.
WORKERS: Final = 2
FIELD_MANAGER: Final = "sharder"


class Recorder(Protocol):
    """Writes Events."""

    def event(self, regarding: Regarding, event_type: EventType, reason: str, message: str) -> None:
        """Have an Event written; never fails, never waits."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """How the API server reaches the webhook; `ca_bundle()` is None where it is not ours to inject."""

    client_config: Mapping[str, Any]
    annotations: Mapping[str, str]
    ca_bundle: Callable[[], bytes | None]


@dataclass(slots=True)
class _Known:
    """What this leader has found out about one ring."""

    denied: tuple[MissingRule, ...] = ()
    asked_at: float | None = None
    asked_for: ResolvedRing | None = None
    summary: Summary = field(default_factory=Summary)
    applied: dict[str, Any] | None = None
    retired: tuple[Placed, ...] | None = None
    failure: str | None = None


class RingController:
    """Rings' surroundings and status, under one leadership.

    `webhook` None: no webhook configurations; those that are there are removed.
    `on_retired(ring)`: what `retired_of` answers has changed. `on_conditions(ring,
    conditions)`: which hold, as written to the ring's status (`None`: unknown).
    """

    def __init__(
        self,
        api: Api,
        registry: Registry,
        *,
        leader: Fence,
        webhook: WebhookSettings | None,
        recorder: Recorder,
        clock: Clock,
        rng: Random,
        on_retired: Callable[[str], None],
        on_conditions: Callable[[str, Mapping[str, bool | None]], None] = lambda ring, conditions: None,
        drain_alarm_seconds: float = DRAIN_ALARM_SECONDS,
    ) -> None:
        self._api = api
        self._registry = registry
        self._leader = leader
        self._webhook = webhook
        self._recorder = recorder
        self._clock = clock
        self._on_retired = on_retired
        self._on_conditions = on_conditions
        self._drain_alarm_seconds = drain_alarm_seconds
        self._known: dict[str, _Known] = {}
        self._queue: WorkQueue[str] = WorkQueue(clock, name="rings", rate_limit=RateLimit(0.1, 30.0, None))
        self.configurations: Reflector[PartialObject] = Reflector(
            api, WEBHOOK_CONFIGURATIONS, selector=Selector(labels=exists(LEASE_RING_LABEL)),
            handler=self._on_configuration, name="webhook configurations", clock=clock, rng=rng,
        )  # fmt: skip

    # -- what others ask ---------------------------------------------------

    def retired_of(self, ring: str) -> tuple[Placed, ...] | None:
        """Resources taken off the ring's list whose objects may be labelled still; `None`: not known yet."""
        known = self._known.get(ring)
        return known.retired if known is not None else None

    def on_summary(self, ring: str, summary: Summary) -> None:
        """Take over what placement found."""
        known = self._known.setdefault(ring, _Known())
        if _rounded(known.summary, self._drain_alarm_seconds) != _rounded(summary, self._drain_alarm_seconds):
            self._queue.add(ring)
        known.summary = summary
        if any(isinstance(error, NotFound) for _, _, error in summary.failures):
            # A type that was served once is so no longer, or in another version.
            self._registry.resolve_again(ring)

    def refresh_all(self) -> None:
        """Look at every ring again: the serving certificate's CA has changed."""
        for entry in self._registry.entries():
            self._queue.add(entry.name)

    # -- running -----------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        unsubscribe = self._registry.subscribe(self._on_change)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.configurations.run())
                await self.configurations.synced.wait()
                self.refresh_all()
                for _ in range(WORKERS):
                    tasks.create_task(self._worker())
        finally:
            unsubscribe()

    def _on_change(self, ring: str, what: int) -> None:
        if what & (Change.RING | Change.MEMBERSHIP):
            self._queue.add(ring)
        elif what & Change.LEASES:
            # Renewals come all the time; what they change shows as MEMBERSHIP.
            entry = self._registry.entry(ring)
            if entry is not None and entry.obj is not None and entry.obj.status_dict.get("shards") != len(entry.leases):
                self._queue.add(ring)

    def _on_configuration(self, delta: Delta[PartialObject]) -> None:
        ring = delta.object.metadata.label(LEASE_RING_LABEL)
        if ring and delta.object.metadata.name == webhook_name(ring):
            known = self._known.get(ring)
            if known is not None and not delta.initial:
                known.applied = None
            self._queue.add(ring)

    async def _worker(self) -> None:
        while (ring := await self._queue.get()) is not None:
            try:
                await self._reconcile(ring)
                self._queue.forget(ring)
            except FenceClosed:
                self._queue.forget(ring)
            except ShardingError as error:
                log.warning("ring not reconciled, will retry", extra={"ring": ring, "error": str(error)})
                if error.retry is not Retry.NEVER or isinstance(error, NotFound):
                    self._queue.add_rate_limited(ring)
                else:
                    self._queue.add_after(ring, DENIED_SECONDS, Priority.BULK)
            finally:
                self._queue.done(ring)

    async def _reconcile(self, ring: str) -> None:
        entry = self._registry.entry(ring)
        if entry is None:
            # Garbage collection would do, but it may take half a minute to know of a new CRD's objects.
            await self._remove_webhook(ring, self._known.pop(ring, _Known()))
            self._on_retired(ring)
            return
        known = self._known.setdefault(ring, _Known())
        resolved = entry.resolved
        known.failure = None
        if resolved is not None and not entry.invalid:
            try:
                await self._check_permissions(ring, known, resolved)
                await self._note_placed(entry, known, resolved)
                await self._apply_webhook(known, resolved)
            except FenceClosed:
                raise
            except ShardingError as error:
                known.failure = str(error)
                await self._show(entry, known)
                raise
        elif entry.invalid is not None:
            await self._remove_webhook(ring, known)
        await self._show(entry, known)

    # -- permissions -------------------------------------------------------

    async def _check_permissions(self, ring: str, known: _Known, resolved: ResolvedRing) -> None:
        now = self._clock.monotonic()
        refused = any(isinstance(error, Forbidden) for _, _, error in known.summary.failures)
        keep = DENIED_SECONDS if known.denied or refused else GRANTED_SECONDS
        if known.asked_at is None or known.asked_for != resolved or now - known.asked_at >= keep:
            rules = [MissingRule(verb, each.resource.group_resource) for each in resolved.subjects() for verb in VERBS]
            denied = [rule for rule in rules if not await self._api.allowed(rule.verb, rule.resource)]
            if known.denied and not denied:
                log.info("permissions granted", extra={"ring": ring})
            known.denied, known.asked_at, known.asked_for = tuple(denied), now, resolved
            keep = DENIED_SECONDS if denied else GRANTED_SECONDS
        self._queue.add_after(ring, max(0.05, known.asked_at + keep - now), Priority.BULK)

    # -- resources that come and go ----------------------------------------

    async def _note_placed(self, entry: RingEntry, known: _Known, resolved: ResolvedRing) -> None:
        """Write down every resource that may carry the ring's labels, before any object gets one."""
        assert entry.obj is not None
        before = dict(_placed_resources(entry.obj.status_dict))
        listed = {each.resource.group_resource: each.role is Role.CONTROLLED for each in resolved.subjects()}
        unserved = set(entry.unserved)
        gone = {
            name: controlled
            for name, controlled in before.items()
            if name not in listed and name not in unserved and name not in known.summary.retired_clean
        }
        wanted = {**{name: kept for name, kept in before.items() if name in unserved}, **gone, **listed}
        if wanted != before:
            rendered = [
                {"group": name.group, "resource": name.resource, "controlled": controlled}
                for name, controlled in sorted(wanted.items())
            ]
            await self._patch_status(entry.name, {"placedResources": rendered})
        retired = []
        for name, controlled in sorted(gone.items()):
            resource = await self._api.discover(name.group, name.resource)
            if resource is not None:
                retired.append(retire(resource, controlled=controlled))
        if known.retired != tuple(retired):
            known.retired = tuple(retired)
            self._on_retired(entry.name)

    # -- webhook configuration ---------------------------------------------

    async def _apply_webhook(self, known: _Known, resolved: ResolvedRing) -> None:
        if self._webhook is None:
            await self._remove_webhook(resolved.spec.name, known)
            return
        wanted = render_webhook(
            resolved,
            client_config=self._webhook.client_config,
            ca_bundle=self._webhook.ca_bundle(),
            annotations=self._webhook.annotations,
        )
        if wanted == known.applied:
            return
        await self._api.patch(
            WEBHOOK_CONFIGURATIONS, wanted["metadata"]["name"], None, wanted, kind=PatchKind.APPLY,
            field_manager=FIELD_MANAGER, force=True, fences=(self._leader,),
        )  # fmt: skip
        known.applied = wanted
        log.info("webhook configuration applied", extra={"ring": resolved.spec.name})

    async def _remove_webhook(self, ring: str, known: _Known) -> None:
        known.applied = None
        seen = self.configurations.store.get("", webhook_name(ring))
        if seen is None:
            return
        meta = seen.metadata
        try:
            await self._api.delete(WEBHOOK_CONFIGURATIONS, meta.name, uid=meta.uid, fences=(self._leader,))
            log.info("webhook configuration removed", extra={"ring": ring})
        except NotFound:
            pass

    # -- status ------------------------------------------------------------

    def _health(self, entry: RingEntry, known: _Known) -> Health:
        summary = known.summary
        counts = Unsettled(
            unassigned=summary.count(Kind.UNASSIGNED),
            stranded=summary.count(Kind.STRANDED),
            draining=summary.count(Kind.DRAINING),
        )
        oldest = summary.oldest_drain
        stuck = oldest is not None and oldest.seconds >= self._drain_alarm_seconds
        assert entry.obj is not None
        return Health(
            generation=entry.obj.metadata.generation,
            problems=entry.invalid.problems if entry.invalid is not None else (),
            failure=known.failure,
            shards=len(entry.leases),
            available=len(entry.membership.available),
            ambiguous=entry.membership.ambiguous,
            unusable=entry.membership.unusable,
            missing=entry.unserved,
            denied=known.denied,
            unsettled=counts if counts or summary.settled else None,
            stuck_drains=(f"{oldest.resource} {oldest.namespace}/{oldest.name} on shard {oldest.shard}",)
            if oldest is not None and stuck
            else (),
        )

    async def _show(self, entry: RingEntry, known: _Known) -> None:
        if entry.obj is None or (entry.resolved is None and entry.invalid is None):
            return
        before = entry.obj.status_dict
        health = self._health(entry, known)
        self._on_conditions(entry.name, {each.type.value: each.status for each in conditions_of(health)})
        status = render_status(health, before, self._clock.now())
        summary = known.summary
        status["unassigned"] = summary.count(Kind.UNASSIGNED)
        status["stranded"] = summary.count(Kind.STRANDED)
        status["draining"] = summary.count(Kind.DRAINING)
        if all(before.get(name) == value for name, value in status.items()):
            return
        await self._patch_status(entry.name, status)
        regarding = Regarding.of(CLUSTERRINGS, entry.obj.metadata)
        for condition in changed_conditions(before, status):
            good = condition["status"] == "True"
            if condition["status"] == "Unknown" or condition["type"] == "Settled":
                continue
            if good and not _was_bad(before, condition["type"]):
                continue
            kind = EventType.NORMAL if good else EventType.WARNING
            self._recorder.event(regarding, kind, condition["reason"], condition["message"])

    async def _patch_status(self, ring: str, status: Mapping[str, Any]) -> None:
        await self._api.patch(
            CLUSTERRINGS, ring, None, {"status": status}, subresource="status", fences=(self._leader,)
        )


def _placed_resources(status: Mapping[str, Any]) -> Iterator[tuple[GroupResource, bool]]:
    listed = status.get("placedResources")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get("resource"), str):
            yield GroupResource(str(each.get("group") or ""), each["resource"]), bool(each.get("controlled"))


def _was_bad(status: Mapping[str, Any], condition: str) -> bool:
    conditions = status.get("conditions")
    return any(
        isinstance(each, Mapping) and each.get("type") == condition and each.get("status") == "False"
        for each in (conditions if isinstance(conditions, list) else ())
    )


def _rounded(summary: Summary, alarm_seconds: float) -> tuple[Any, ...]:
    """What of a summary is worth a look at the status."""
    oldest = summary.oldest_drain
    stuck = (oldest.namespace, oldest.name) if oldest is not None and oldest.seconds >= alarm_seconds else None
    failures = tuple((resource, kind, type(error)) for resource, kind, error in summary.failures)
    return summary.settled, summary.counts, stuck, failures, summary.retired_clean
