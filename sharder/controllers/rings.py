"""Leader's part: what a ring needs around it, and what its people see.

Does: check permissions, keep the ring's webhook configuration as it should be,
remember which resources hold labels of the ring (so that one taken off the list
is cleaned up, whoever leads then), and write status, conditions and Events.

Refuses: to place or to judge; it shows what the others found.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

from sharder.controllers.crowd import Crowd
from sharder.controllers.informers import Kind
from sharder.controllers.othersharders import OtherSharders, ring_of_other
from sharder.controllers.placement import retire
from sharder.controllers.refusals import Refused
from sharder.controllers.registry import Registry, RingEntry
from sharder.controllers.ringstatus import health_of, only_settling, was, worth_a_look
from sharder.controllers.ringsummary import Summary
from sharder.controllers.seen import Placed
from sharder.controllers.subscribers import Change
from sharder.controllers.working import work_off
from sharder.core.ringspec import ResolvedRing, Role, placed_resources
from sharder.core.status import (
    ConditionType,
    MissingRule,
    changed_conditions,
    conditions_of,
    render_status,
)
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS, WEBHOOK_TIMEOUT_SECONDS, render_webhook, webhook_name
from shardsdk.errors import FenceClosed, Forbidden, NotFound, Retry, ShardingError
from shardsdk.kube.api import Api, Fence, PatchKind
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource, PartialObject
from shardsdk.runtime.events import EventType, Regarding
from shardsdk.runtime.queue import Priority, RateLimit, WorkQueue

log = logging.getLogger(__name__)

#: What the sharder needs on each resource of a ring.
VERBS: Final = ("list", "watch", "patch")
#: How long granted permissions are believed, and missing ones before they are asked for again.
GRANTED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 3.0
#: A drain that waits longer than this shows as a condition and an Event.
DRAIN_ALARM_SECONDS: Final = 60.0
#: How long somebody else's change of a webhook configuration stays.
REPAIR_SECONDS: Final = 0.5
#: Between two writes of a status that differ in numbers only: while much moves, they always do.
STATUS_SECONDS: Final = 3.0
#: Rings worked on side by side.
WORKERS: Final = 2
FIELD_MANAGER: Final = "sharder"
#: Reason of the Event about objects whose labels cannot be changed.
REFUSED: Final = "PlacementRefused"


class Recorder(Protocol):
    """Writes Events."""

    def event(self, regarding: Regarding, event_type: EventType, reason: str, message: str) -> None:
        """Have an Event written; never fails, never waits."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """How the API server reaches the webhook, and when.

    `ca_bundle()` is None where it is not ours to inject. `account()` is the user
    name under which the sharder writes, empty while it is not known.
    """

    client_config: Mapping[str, Any]
    annotations: Mapping[str, str]
    ca_bundle: Callable[[], bytes | None]
    account: Callable[[], str] = lambda: ""
    timeout_seconds: int = WEBHOOK_TIMEOUT_SECONDS


@dataclass(slots=True)
class _Known:
    """What this leader has found out about one ring."""

    denied: tuple[MissingRule, ...] = ()
    asked_at: float | None = None
    asked_for: tuple[GroupResource, ...] | None = None
    summary: Summary = field(default_factory=Summary)
    applied: dict[str, Any] | None = None
    applied_version: str = ""
    shown_at: float = float("-inf")
    retired: tuple[Placed, ...] = ()
    noted: ResolvedRing | None = None
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
        self._crowd = Crowd(registry)
        self._queue: WorkQueue[str] = WorkQueue(clock, name="rings", rate_limit=RateLimit(0.1, 30.0, None))
        self.configurations: Reflector[PartialObject] = Reflector(
            api, WEBHOOK_CONFIGURATIONS,
            handler=self._on_configuration, name="webhook configurations", clock=clock, rng=rng,
        )  # fmt: skip
        self._others = OtherSharders(api, self.configurations.store, leader=leader, clock=clock)

    # -- what others ask ---------------------------------------------------

    def retired_of(self, ring: str) -> tuple[Placed, ...] | None:
        """Resources taken off the ring's list whose objects may be labelled still.

        `None`: not known yet, or what the ring lists now is not written down yet.
        """
        known, entry = self._known.get(ring), self._registry.entry(ring)
        return known.retired if known is not None and entry is not None and known.noted == entry.resolved else None

    def on_summary(self, ring: str, summary: Summary) -> None:
        """Take over what placement found."""
        known = self._known.get(ring)
        if known is None:
            return
        if worth_a_look(known.summary, self._drain_alarm_seconds) != worth_a_look(summary, self._drain_alarm_seconds):
            self._queue.add(ring)
        known.summary = summary
        if any(isinstance(error, NotFound) for _, _, error in summary.failures):
            # A type that was served once is so no longer, or in another version.
            self._registry.resolve_again(ring)

    def on_refused(self, ring: str, refused: Refused) -> None:
        """Tell people of objects whose labels the API server lets nobody change."""
        entry = self._registry.entry(ring)
        if entry is None or entry.obj is None or self._may_not_patch(ring, refused.resource):
            return
        message = refused.render()
        where = {"resource": str(refused.resource), "namespace": refused.namespace, "object": refused.name}
        log.warning("object cannot be placed", extra={"ring": ring, **where, "why": message})
        self._recorder.event(Regarding.of(CLUSTERRINGS, entry.obj.metadata), EventType.WARNING, REFUSED, message)

    def _may_not_patch(self, ring: str, resource: GroupResource) -> bool:
        """Whether a missing permission explains it; the ring's conditions tell of that."""
        known = self._known.get(ring)
        return known is not None and MissingRule("patch", resource) in known.denied

    def refresh_all(self) -> None:
        """Look at every ring again: what their webhook configurations are made from has changed."""
        for entry in self._registry.entries():
            self._queue.add(entry.name)

    # -- running -----------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        unsubscribe = self._registry.subscribe(self._on_change)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.configurations.run())
                self.refresh_all()
                for _ in range(WORKERS):
                    tasks.create_task(work_off(self._queue, self._reconcile, self._failed))
        finally:
            unsubscribe()
            await self._queue.shut_down()

    def _on_change(self, ring: str, what: int) -> None:
        if what & (Change.RING | Change.MEMBERSHIP):
            self._queue.add(ring)
        elif what & Change.LEASES:
            # Renewals come all the time; what they change shows as MEMBERSHIP.
            entry = self._registry.entry(ring)
            if entry is not None and entry.obj is not None and entry.obj.status_dict.get("shards") != len(entry.leases):
                self._queue.add(ring)

    def _on_configuration(self, delta: Delta[PartialObject]) -> None:
        other = ring_of_other(delta.object)
        if other is not None:
            self._queue.add(other)
        ring = delta.object.metadata.label(LEASE_RING_LABEL)
        if ring and delta.object.metadata.name == webhook_name(ring):
            known = self._known.get(ring)
            if known is None:
                self._queue.add(ring)
            elif delta.kind is EventKind.DELETED or delta.object.metadata.resource_version != known.applied_version:
                known.applied = None
                # Not at once: somebody who changes it back each time would keep both of us busy.
                self._queue.add_after(ring, REPAIR_SECONDS)

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
                await self._note_placed(entry, known, resolved)
                if not entry.unanswered or self.configurations.store.get("", webhook_name(ring)) is None:
                    # One that is there may name more than can be looked up at present.
                    await self._apply_webhook(known, resolved)
                known.failure = self._crowd.judge(ring)
                rival = await self._others.remove(resolved.spec)
                if rival is not None:
                    known.failure, seconds = rival
                    self._queue.add_after(ring, seconds)
                await self._check_permissions(ring, known, resolved)
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
        subjects = (*resolved.subjects(), *(each.subject for each in known.retired))
        asked_for = tuple(each.resource.group_resource for each in subjects)
        if known.asked_at is None or known.asked_for != asked_for or now - known.asked_at >= keep:
            rules = [MissingRule(verb, resource) for resource in asked_for for verb in VERBS]
            denied = [rule for rule in rules if not await self._api.allowed(rule.verb, rule.resource)]
            if known.denied and not denied:
                log.info("permissions granted", extra={"ring": ring})
            known.denied, known.asked_at, known.asked_for = tuple(denied), now, asked_for
            keep = DENIED_SECONDS if denied else GRANTED_SECONDS
        self._queue.add_after(ring, max(0.05, known.asked_at + keep - now), Priority.BULK)

    # -- resources that come and go ----------------------------------------

    async def _note_placed(self, entry: RingEntry, known: _Known, resolved: ResolvedRing) -> None:
        """Write down every resource that may carry the ring's labels, before any object gets one."""
        assert entry.obj is not None
        before = dict(placed_resources(entry.obj.status_dict))
        listed = {each.resource.group_resource: each.role is Role.CONTROLLED for each in resolved.subjects()}
        # Also what an owner that is not served controls: its labels are needed when it is served again.
        unserved = set(resolved.spec.named) - listed.keys()
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
            try:
                resource = await self._api.discover(name.group, name.resource)
            except ShardingError as error:
                # What is no longer listed must not keep the rest from being placed.
                extra = {"ring": entry.name, "resource": str(name), "error": str(error)}
                log.warning("resource that was taken off the ring not looked up, will retry", extra=extra)
                self._queue.add_after(entry.name, GRANTED_SECONDS, Priority.BULK)
                continue
            if resource is not None:
                retired.append(retire(resource, controlled=controlled))
        if known.retired != tuple(retired) or known.noted != resolved:
            known.retired, known.noted = tuple(retired), resolved
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
            account=self._webhook.account(),
            timeout_seconds=self._webhook.timeout_seconds,
        )
        if wanted == known.applied:
            return
        made = await self._api.patch(
            WEBHOOK_CONFIGURATIONS, wanted["metadata"]["name"], None, wanted, kind=PatchKind.APPLY,
            field_manager=FIELD_MANAGER, force=True, fences=(self._leader,),
        )  # fmt: skip
        known.applied, known.applied_version = wanted, made.metadata.resource_version
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

    async def _show(self, entry: RingEntry, known: _Known) -> None:
        if entry.obj is None or (entry.resolved is None and entry.invalid is None):
            return
        before = entry.obj.status_dict
        health = health_of(entry, known.summary, known.failure, known.denied, self._drain_alarm_seconds)
        self._on_conditions(entry.name, {each.type.value: each.status for each in conditions_of(health)})
        status = render_status(health, before, self._clock.now())
        summary = known.summary
        status["unassigned"] = summary.count(Kind.UNASSIGNED)
        status["stranded"] = summary.count(Kind.STRANDED)
        status["draining"] = summary.count(Kind.DRAINING)
        if all(before.get(name) == value for name, value in status.items()):
            return
        changed = [each for each in changed_conditions(before, status) if not only_settling(before, each)]
        early = known.shown_at + STATUS_SECONDS - self._clock.monotonic()
        if early > 0 and not changed and before.get("observedGeneration") == status["observedGeneration"]:
            self._queue.add_after(entry.name, early, Priority.BULK)
            return
        await self._patch_status(entry.name, status)
        known.shown_at = self._clock.monotonic()
        regarding = Regarding.of(CLUSTERRINGS, entry.obj.metadata)
        for condition in changed:
            good = condition["status"] == "True"
            if condition["status"] == "Unknown" or condition["type"] == ConditionType.SETTLED:
                continue
            if good and not was(before, condition["type"], "False"):
                continue
            kind = EventType.NORMAL if good else EventType.WARNING
            self._recorder.event(regarding, kind, condition["reason"], condition["message"])

    async def _patch_status(self, ring: str, status: Mapping[str, Any]) -> None:
        await self._api.patch(
            CLUSTERRINGS, ring, None, {"status": status}, subresource="status", fences=(self._leader,)
        )
