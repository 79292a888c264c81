"""Leader's part: what one ring needs around it, and what its people see.

Does: check permissions, keep the ring's webhook configuration as it should be,
remember which resources hold labels of the ring (so that one taken off the list
is cleaned up, whoever leads then), and write status, conditions and Events.

Refuses: to place or to judge; it shows what the others found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from sharder.backlog.informers import Kind
from sharder.backlog.objects import Placed
from sharder.cache.rings import Registry, RingEntry
from sharder.cache.subscribers import Change
from sharder.cache.working import work_off
from sharder.core.ringspec import ResolvedMain, ResolvedRing, Role, Subject, placed_resources
from sharder.core.status import (
    ConditionType,
    MissingRule,
    changed_conditions,
    conditions_of,
    render_status,
)
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS, render_webhook, webhook_name
from sharder.placement.rejections import Refused
from sharder.rings.deps import RingDeps
from sharder.rings.status import health_of, only_settling, was, worth_a_look
from sharder.rings.summary import Summary
from shardsdk.errors import FenceClosed, Forbidden, NotFound, Retry, ShardingError
from shardsdk.events.recorder import EventType, Regarding
from shardsdk.kube.api import PatchKind
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource, PartialObject, Resource
from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue

log = logging.getLogger(__name__)

#: What the sharder needs on each resource of a ring.
VERBS: Final = ("list", "watch", "patch")
#: How long granted permissions are believed, and missing ones before they are asked for again.
GRANTED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 3.0
#: How long somebody else's change of a webhook configuration stays.
REPAIR_SECONDS: Final = 0.5
#: Between two writes of a status that differ in numbers only: while much moves, they always do.
STATUS_SECONDS: Final = 3.0
FIELD_MANAGER: Final = "sharder"
#: Reason of the Event about objects whose labels cannot be changed.
REFUSED: Final = "PlacementRefused"


class RingReporter:
    """One ring's surroundings and status, under one leadership."""

    def __init__(self, ring: str, deps: RingDeps, registry: Registry) -> None:
        self._ring = ring
        self._deps = deps
        self._lead = deps.leadership
        self._api = self._lead.api
        self._registry = registry
        self._clock = self._lead.clock
        self._configurations = deps.configurations
        self._queue: WorkQueue[str] = WorkQueue(
            self._clock, name=f"rings/{ring}", rate_limit=RateLimit(0.1, 30.0, None)
        )
        #: Told when `retired` is another than before.
        self.when_recorded: list[Callable[[], None]] = []
        #: The ring is gone, and so is what was made for it.
        self.cleaned = False
        self._denied: tuple[MissingRule, ...] = ()
        self._asked_at: float | None = None
        self._asked_for: tuple[GroupResource, ...] | None = None
        self._summary = Summary()
        self._applied: dict[str, Any] | None = None
        self._applied_version = ""
        self._shown_at = float("-inf")
        self._retired: tuple[Placed, ...] = ()
        self._recorded: ResolvedRing | None = None
        self._failure: str | None = None

    # -- what others ask ---------------------------------------------------

    @property
    def retired(self) -> tuple[Placed, ...] | None:
        """Resources taken off the ring's list whose objects may be labelled still.

        `None`: not known yet, or what the ring lists now is not written down yet.
        """
        entry = self._registry.entry(self._ring)
        return self._retired if entry is not None and self._recorded == entry.resolved else None

    def on_summary(self, summary: Summary) -> None:
        """Take over what placement found."""
        before, alarm = self._summary, self._deps.settings.drain_alarm_seconds
        if worth_a_look(before, alarm) != worth_a_look(summary, alarm):
            self.enqueue()
        self._summary = summary
        if any(isinstance(error, NotFound) for _, _, error in summary.failures):
            # A type that was served once is so no longer, or in another version.
            self._registry.resolve_again(self._ring)

    def on_refused(self, refused: Refused) -> None:
        """Tell people of objects whose labels the API server lets nobody change."""
        entry = self._registry.entry(self._ring)
        if entry is None or entry.obj is None or MissingRule("patch", refused.resource) in self._denied:
            return  # the ring's conditions tell of a permission that is missing
        message = refused.render()
        where = {"resource": str(refused.resource), "namespace": refused.namespace, "object": refused.name}
        log.warning("object cannot be placed", extra={"ring": self._ring, **where, "why": message})
        self._event(entry, EventType.WARNING, REFUSED, message)

    # -- running -----------------------------------------------------------

    def enqueue(self) -> None:
        """Look at the ring again."""
        self._queue.add(self._ring)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            self.enqueue()
            await work_off(self._queue, self._reconcile_next, self._failed)
        finally:
            await self._queue.shut_down()

    def on_change(self, what: int) -> None:
        """The registry tells of the ring."""
        if what & (Change.RING | Change.MEMBERSHIP):
            self.enqueue()
        elif what & Change.LEASES:
            # Renewals come all the time; what they change shows as MEMBERSHIP.
            entry = self._registry.entry(self._ring)
            if entry is not None and entry.obj is not None and entry.obj.status_dict.get("shards") != len(entry.leases):
                self.enqueue()

    def on_configuration(self, delta: Delta[PartialObject]) -> None:
        """The ring's webhook configuration, or another sharder's for it, has changed."""
        if delta.object.metadata.name != webhook_name(self._ring):
            self.enqueue()
        elif delta.kind is EventKind.DELETED or delta.object.metadata.resource_version != self._applied_version:
            self._applied = None
            # Not at once: somebody who changes it back each time would keep both of us busy.
            self._queue.add_after(self._ring, REPAIR_SECONDS)

    def _failed(self, ring: str, error: Exception) -> None:
        if not isinstance(error, ShardingError):
            log.error("ring not reconciled, will retry", extra={"ring": ring}, exc_info=error)
            self._queue.add_rate_limited(ring)
            return
        log.warning("ring not reconciled, will retry", extra={"ring": ring, "error": str(error)})
        if error.retry is not Retry.NEVER or isinstance(error, NotFound):
            self._queue.add_rate_limited(ring)
        else:
            self._queue.add_after(ring, DENIED_SECONDS, Priority.BULK)

    async def _reconcile_next(self, ring: str) -> None:
        async with self._deps.settings.reports:
            await self._reconcile()

    async def _reconcile(self) -> None:
        entry = self._registry.entry(self._ring)
        self.cleaned = False
        if entry is None:
            # Garbage collection would do, but it may take half a minute to know of a new CRD's objects.
            await self._remove_webhook()
            self._recorded, self.cleaned = None, True
            self._tell_recorded()
            return
        resolved = entry.resolved
        self._failure = None
        if resolved is not None and not entry.invalid:
            try:
                await self._record_placed(entry, resolved)
                if not entry.unanswered or self._configurations.find(webhook_name(self._ring)) is None:
                    # One that is there may name more than can be looked up at present.
                    await self._apply_webhook(resolved)
                self._failure = self._deps.watch_count.judge(self._ring)
                rival = await self._configurations.others.remove(resolved.spec)
                if rival is not None:
                    self._failure, seconds = rival
                    self._queue.add_after(self._ring, seconds)
                await self._check_permissions(resolved)
            except FenceClosed:
                raise
            except ShardingError as error:
                self._failure = str(error)
                await self._show(entry)
                raise
        elif entry.invalid is not None:
            await self._remove_webhook()
        await self._show(entry)

    def _tell_recorded(self) -> None:
        for tell in self.when_recorded:
            tell()

    def _event(self, entry: RingEntry, kind: EventType, reason: str, message: str) -> None:
        assert entry.obj is not None
        self._deps.recorder.event(Regarding.of(CLUSTERRINGS, entry.obj.metadata), kind, reason, message)

    # -- permissions -------------------------------------------------------

    async def _check_permissions(self, resolved: ResolvedRing) -> None:
        now = self._clock.monotonic()
        refused = any(isinstance(error, Forbidden) for _, _, error in self._summary.failures)
        keep = DENIED_SECONDS if self._denied or refused else GRANTED_SECONDS
        subjects = (*resolved.subjects(), *(each.subject for each in self._retired))
        asked_for = tuple(each.resource.group_resource for each in subjects)
        if self._asked_at is None or self._asked_for != asked_for or now - self._asked_at >= keep:
            rules = [MissingRule(verb, resource) for resource in asked_for for verb in VERBS]
            denied = [rule for rule in rules if not await self._api.allowed(rule.verb, rule.resource)]
            if self._denied and not denied:
                log.info("permissions granted", extra={"ring": self._ring})
            self._denied, self._asked_at, self._asked_for = tuple(denied), now, asked_for
            keep = DENIED_SECONDS if denied else GRANTED_SECONDS
        self._queue.add_after(self._ring, max(0.05, self._asked_at + keep - now), Priority.BULK)

    # -- resources that come and go ----------------------------------------

    async def _record_placed(self, entry: RingEntry, resolved: ResolvedRing) -> None:
        """Write down every resource that may carry the ring's labels, before any object gets one."""
        assert entry.obj is not None
        before = dict(placed_resources(entry.obj.status_dict))
        listed = {each.resource.group_resource: each.role is Role.CONTROLLED for each in resolved.subjects()}
        # Also what an owner that is not served controls: its labels are needed when it is served again.
        unserved = set(resolved.spec.named) - listed.keys()
        gone = {
            name: controlled
            for name, controlled in before.items()
            if name not in listed and name not in unserved and name not in self._summary.retired_clean
        }
        wanted = {**{name: kept for name, kept in before.items() if name in unserved}, **gone, **listed}
        if wanted != before:
            rendered = [
                {"group": name.group, "resource": name.resource, "controlled": controlled}
                for name, controlled in sorted(wanted.items())
            ]
            await self._patch_status({"placedResources": rendered})
        retired = []
        for name, controlled in sorted(gone.items()):
            try:
                resource = await self._api.discover(name.group, name.resource)
            except ShardingError as error:
                # What is no longer listed must not keep the rest from being placed.
                extra = {"ring": entry.name, "resource": str(name), "error": str(error)}
                log.warning("resource that was taken off the ring not looked up, will retry", extra=extra)
                self._queue.add_after(self._ring, GRANTED_SECONDS, Priority.BULK)
                continue
            if resource is not None:
                retired.append(retire(resource, controlled=controlled))
        if self._retired != tuple(retired) or self._recorded != resolved:
            self._retired, self._recorded = tuple(retired), resolved
            self._tell_recorded()

    # -- webhook configuration ---------------------------------------------

    async def _apply_webhook(self, resolved: ResolvedRing) -> None:
        webhook = self._deps.settings.webhook
        if webhook is None:
            await self._remove_webhook()
            return
        wanted = render_webhook(
            resolved,
            client_config=webhook.client_config,
            ca_bundle=webhook.ca_bundle(),
            annotations=webhook.annotations,
            account=webhook.account(),
            timeout_seconds=webhook.timeout_seconds,
        )
        if wanted == self._applied:
            return
        made = await self._api.patch(
            WEBHOOK_CONFIGURATIONS, wanted["metadata"]["name"], None, wanted, kind=PatchKind.APPLY,
            field_manager=FIELD_MANAGER, force=True, fences=(self._lead.fence,),
        )  # fmt: skip
        self._applied, self._applied_version = wanted, made.metadata.resource_version
        log.info("webhook configuration applied", extra={"ring": resolved.spec.name})

    async def _remove_webhook(self) -> None:
        self._applied = None
        seen = self._configurations.find(webhook_name(self._ring))
        if seen is None:
            return
        meta = seen.metadata
        try:
            await self._api.delete(WEBHOOK_CONFIGURATIONS, meta.name, uid=meta.uid, fences=(self._lead.fence,))
            log.info("webhook configuration removed", extra={"ring": self._ring})
        except NotFound:
            pass

    # -- status ------------------------------------------------------------

    async def _show(self, entry: RingEntry) -> None:
        if entry.obj is None or (entry.resolved is None and entry.invalid is None):
            return
        before = entry.obj.status_dict
        health = health_of(entry, self._summary, self._failure, self._denied, self._deps.settings.drain_alarm_seconds)
        self._lead.counters.conditions(self._ring, {each.type.value: each.status for each in conditions_of(health)})
        status = render_status(health, before, self._clock.now())
        summary = self._summary
        status["unassigned"] = summary.count(Kind.UNASSIGNED)
        status["stranded"] = summary.count(Kind.STRANDED)
        status["draining"] = summary.count(Kind.DRAINING)
        if all(before.get(name) == value for name, value in status.items()):
            return
        changed = [each for each in changed_conditions(before, status) if not only_settling(before, each)]
        early = self._shown_at + STATUS_SECONDS - self._clock.monotonic()
        if early > 0 and not changed and before.get("observedGeneration") == status["observedGeneration"]:
            self._queue.add_after(self._ring, early, Priority.BULK)
            return
        await self._patch_status(status)
        self._shown_at = self._clock.monotonic()
        for condition in changed:
            good = condition["status"] == "True"
            if condition["status"] == "Unknown" or condition["type"] == ConditionType.SETTLED:
                continue
            if good and not was(before, condition["type"], "False"):
                continue
            kind = EventType.NORMAL if good else EventType.WARNING
            self._event(entry, kind, condition["reason"], condition["message"])

    async def _patch_status(self, status: Mapping[str, Any]) -> None:
        await self._api.patch(
            CLUSTERRINGS, self._ring, None, {"status": status}, subresource="status", fences=(self._lead.fence,)
        )


def retire(resource: Resource, *, controlled: bool) -> Placed:
    """A resource that the ring lists no longer, as placement sees it."""
    main = ResolvedMain(resource)
    return Placed(Subject(Role.CONTROLLED if controlled else Role.MAIN, resource, main), retired=True)
