"""A ring's status: conditions, counts, and the Events about what has changed.

Does: put together what the others found, and write it when it differs; numbers that
keep changing are written now and then only.  Refuses: to judge.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sharder.cache.rings import RingSnapshot
from sharder.core.conditions import ConditionType, changed_conditions
from sharder.core.problems import some
from sharder.core.rangestatus import describe_unfit
from sharder.core.rights import MissingRule
from sharder.core.ringspec import AssignBy, ResolvedRing, Role, selects_by_name
from sharder.core.selectors import as_terms
from sharder.core.status import Health, NotInForce, Unsettled, conditions_of, render_status
from sharder.core.summary import Pending, Refused, Summary, shortened
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS
from sharder.takeover.leadership import Leadership
from shardsdk.errors import Conflict, FenceClosed, Forbidden, Invalid, NotFound, RetryRule, ShardingError
from shardsdk.events.recorder import EventType, Regarding
from shardsdk.lease.election import Recorder
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource

log = logging.getLogger(__name__)

#: Between two writes of a status that differ in numbers only: while much moves, they always do.
STATUS_SECONDS: Final = 3.0
#: A pause so short is none: clocks are not as fine, and who waits for it spins.
_AT_ONCE_SECONDS: Final = 0.001
#: A status that is refused for so long is told of by Events: an API server that has just begun refuses much, and one
#: that is away or busy has not refused it.
REFUSED_SECONDS: Final = 90.0
#: Reason of the Event about that.
NOT_WRITTEN: Final = "StatusNotWritten"
#: Reason of the Event about objects whose labels cannot be changed.
REFUSED: Final = "PlacementRefused"
#: Reason of the Event about a RingAssignment that cannot say what it should.
OUTDATED: Final = "DefinitionOutdated"
#: Reason of the Event about somebody who changes a RingAssignment back again and again.
CONTESTED: Final = "AssignmentContested"


class StatusWriter:
    """Writes the status of one ring, and Events about it."""

    def __init__(self, ring: str, leadership: Leadership, recorder: Recorder, *, drain_alarm_seconds: float) -> None:
        self._ring = ring
        self._lead = leadership
        self._recorder = recorder
        self._drain_alarm_seconds = drain_alarm_seconds
        self._written: Mapping[str, Any] = {}
        self._written_at = float("-inf")
        #: Its conditions.
        self._said: frozenset[tuple[str, ...]] = frozenset()
        #: The version of the ring as it was seen when that was written: while no other is, its status is what was
        #: written, also where the watch of rings tells nothing any more.
        self._written_on: str | None = None
        #: Since when it is refused, and what has been told instead.
        self._refused_since = float("inf")
        self._told: set[tuple[str, ...]] = set()
        self._dropped_fields: frozenset[str] = frozenset()
        self._contested = False

    async def write(self, status: Mapping[str, Any]) -> None:
        """Merge `status` into the ring's."""
        await self._lead.api.patch(
            CLUSTERRINGS, self._ring, None, {"status": status}, subresource="status", fences=(self._lead.fence,)
        )

    async def show(
        self, ring: RingSnapshot, summary: Summary, failure: str | None, denied: tuple[MissingRule, ...]
    ) -> float | None:
        """Write how the ring is, if its status says otherwise; returns in how many seconds that is due, if not now.

        The summary's `failures` are told as they are: those that people need not know of have been left out.
        """
        if ring.resolved is None and ring.invalid is None and ring.unresolved is None:
            return None  # it is being looked up
        clock, before = self._lead.clock, ring.obj.status_dict
        if ring.obj.metadata.resource_version == self._written_on:
            before = {**before, **self._written}
        health = health_of(ring, summary, failure, denied, self._drain_alarm_seconds)
        self._measure(health)
        status = render_status(health, before, clock.now())
        for kind in Pending:
            status[kind.value] = summary.count(kind)
        if ring.resolved is not None:
            status["namespaceSelector"] = _covered(ring.resolved, before.get("namespaceSelector"))
        if all(before.get(name) == value or self._dropped(name, value, before) for name, value in status.items()):
            self._said = frozenset(map(_key, status["conditions"]))  # also by a write whose answer was lost
            self._settle(health)
            return None
        changed = [each for each in changed_conditions(before, status) if not _can_wait(before, each)]
        # What was written already, and somebody has changed back, can wait: another sharder may do so each time.
        news = [each for each in changed if _key(each) not in self._said]
        early = due_in(self._written_at, clock.monotonic())
        if early > 0 and not news and before.get("observedGeneration") == status["observedGeneration"]:
            return early
        self._told &= {(NOT_WRITTEN,), *map(_key, news)}
        try:
            await self._write_most(ring, before, news, status)
        except (FenceClosed, Conflict, NotFound):
            raise
        except ShardingError as error:
            self._fail(ring, before, news, error)
            self._measure(health)
            raise
        self._written, self._written_at, self._written_on = (
            status,
            clock.monotonic(),
            ring.obj.metadata.resource_version,
        )
        self._said = frozenset(map(_key, status["conditions"]))
        self._tell(ring, before, news)
        self._settle(health)
        return None

    async def _write_most(
        self, ring: RingSnapshot, before: Mapping[str, Any], news: Sequence[Mapping[str, Any]], status: dict[str, Any]
    ) -> None:
        try:
            await self.write(status)
        except Invalid:
            self._tell(ring, before, news)  # where the ring itself is at fault, an Event is all that its user will see
            await self.write({name: status[name] for name in ("observedGeneration", "conditions")})
            self._refused_since = float("inf")
            raise

    def _fail(
        self, ring: RingSnapshot, before: Mapping[str, Any], news: Iterable[Mapping[str, Any]], error: ShardingError
    ) -> None:
        """The status could not be written: once it is refused for a while, Events tell people what it would say."""
        if error.retry is not RetryRule.NEVER and not isinstance(error, Forbidden):
            return  # an API server that is away, or busy: that is over some time
        self._refused_since = min(self._refused_since, self._lead.clock.monotonic())
        if not self._is_refused():
            return
        self._tell(ring, before, news)
        if (NOT_WRITTEN,) not in self._told:
            self._told.add((NOT_WRITTEN,))
            log.warning("status of a ring not written", extra={"ring": self._ring, "error": str(error)})
            remedy = ""
            if isinstance(error, Forbidden):
                remedy = " let the sharder patch clusterrings/status (its own ClusterRole, or what else refuses it);"
            message = (
                "the ring's status cannot be written, and says how the ring was before:"
                f" {shortened(str(error))};{remedy} it is tried again by itself"
            )
            self._event(ring, EventType.WARNING, NOT_WRITTEN, message)

    def _is_refused(self) -> bool:
        return self._lead.clock.monotonic() - self._refused_since >= REFUSED_SECONDS

    def _settle(self, health: Health) -> None:
        """The status says how the ring is."""
        self._refused_since = float("inf")
        self._told.clear()
        self._measure(health)

    def _measure(self, health: Health) -> None:
        """Have the metric say how the ring is; one whose status says something else is not ready."""
        holds = {each.type.value: each.status for each in conditions_of(health)}
        if self._is_refused():
            holds[ConditionType.READY.value] = False
        self._lead.counters.conditions(self._ring, holds)

    def _dropped(self, name: str, value: Any, before: Mapping[str, Any]) -> bool:
        """Whether this was written, and dropped by a CustomResourceDefinition that is older than this sharder."""
        return name not in before and self._written.get(name) == value

    def tell_refused(self, ring: RingSnapshot, refused: Refused, denied: tuple[MissingRule, ...]) -> None:
        """Tell people of objects whose labels the API server lets nobody change."""
        if MissingRule("patch", refused.resource) in denied:
            return  # the ring's conditions tell of a permission that is missing
        message = refused.render()
        where = {"resource": str(refused.resource), "namespace": refused.namespace, "object": refused.name}
        log.warning("object cannot be placed", extra={"ring": self._ring, **where, "why": message})
        self._event(ring, EventType.WARNING, REFUSED, message)

    def tell_dropped(self, ring: RingSnapshot, fields: frozenset[str]) -> None:
        """Tell people of fields that the definition of RingAssignments drops, which the log says as well.

        No condition does: the ring works, and nobody would see it there when the definition is up to date.
        """
        if fields - self._dropped_fields:
            message = (
                f"the definition of RingAssignments is older than the sharder, and drops {some(sorted(fields))} of each"
                " range; bring it up to date: `sharder crds --apply`, or the Helm chart; until then who has a range may"
                " be taken for another shard of that name, and one that changes hands may be sent elsewhere"
            )
            self._event(ring, EventType.WARNING, OUTDATED, message)
        self._dropped_fields = fields

    def tell_contested(self, ring: RingSnapshot, words: str | None) -> None:
        """Tell people that somebody changes the RingAssignment back; `None`: nobody does."""
        if words is not None and not self._contested:
            self._event(ring, EventType.WARNING, CONTESTED, words)
        self._contested = words is not None

    def _tell(self, ring: RingSnapshot, before: Mapping[str, Any], news: Iterable[Mapping[str, Any]]) -> None:
        for condition in news:
            good = condition["status"] == "True"
            if condition["status"] == "Unknown" or condition["type"] == ConditionType.SETTLED:
                continue
            if (good and not _was(before, condition["type"], "False")) or _key(condition) in self._told:
                continue
            self._told.add(_key(condition))
            kind = EventType.NORMAL if good else EventType.WARNING
            self._event(ring, kind, condition["reason"], condition["message"])

    def _event(self, ring: RingSnapshot, kind: EventType, reason: str, message: str) -> None:
        self._recorder.event(Regarding.of(CLUSTERRINGS, ring.obj.metadata), kind, reason, message)


def _key(condition: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes it news."""
    return tuple(str(condition[name]) for name in ("type", "status", "reason"))


def due_in(written_at: float, now: float) -> float:
    """In how many seconds what may wait is written, after what was `written_at`; 0: now."""
    left = written_at + STATUS_SECONDS - now
    return left if left > _AT_ONCE_SECONDS else 0.0


def _covered(ring: ResolvedRing, before: object) -> dict[str, Any] | None:
    """What its status tells shards; what these cannot tell by names is not told, and they go by what was `before`."""
    selector = ring.namespace_selector if ring.unnamed is None else selects_by_name(before)
    return None if selector is None else {"matchExpressions": as_terms(selector).render().get("matchExpressions", [])}


def health_of(
    ring: RingSnapshot,
    summary: Summary,
    failure: str | None,
    denied: tuple[MissingRule, ...],
    drain_alarm_seconds: float,
) -> Health:
    """What a ring's conditions are made from."""
    counts = Unsettled(
        unassigned=summary.count(Pending.UNASSIGNED),
        stranded=summary.count(Pending.STRANDED),
        draining=summary.count(Pending.DRAINING),
        misplaced=summary.misplaced,
    )
    stuck = summary.stuck_drain(drain_alarm_seconds)
    unread: dict[GroupResource, str] = {}
    for resource, _, error in summary.failures:
        unread.setdefault(resource, shortened(str(error)))
    # Objects are placed without the webhook, so that all else is known.
    webhook = unread.pop(WEBHOOK_CONFIGURATIONS.group_resource, None)
    if webhook is not None:
        failure = " | ".join(filter(None, (failure, _render_unwatched(webhook))))
    unresolved = ring.unresolved
    # By the spec before, where there is one; and not by a part of what the ring lists.
    settled = summary.settled and unresolved is None and not summary.waiting
    return Health(
        generation=_generation(ring),
        problems=ring.invalid.problems if ring.invalid is not None else (),
        failure=failure,
        unread=tuple(unread.items()),
        shards=len(ring.leases),
        available=len(ring.membership.available - dict((*summary.not_acquired, *summary.abandoned)).keys()),
        not_acquired=tuple(shortened(why) for _, why in summary.not_acquired),
        abandoned=tuple(lease for _, lease in summary.abandoned),
        shards_before=summary.shards_before,
        ambiguous=tuple(each for name in sorted(ring.membership.ambiguous) for each in _held_as(ring, name)),
        unusable=ring.membership.unusable,
        unsteady=ring.membership.unsteady,
        unrenewed=ring.membership.unrenewed,
        shards_leaving=ring.membership.leaving,
        shards_left=ring.membership.left,
        remarks=summary.remarks,
        mixed=ring.membership.mixed,
        overlong=ring.membership.overlong,
        as_main=_controlled_as_main(ring),
        not_reconciled=_not_reconciled(ring),
        taken=summary.taken,
        overlapping=summary.ranges.overlapping if summary.ranges is not None else None,
        unfit=describe_unfit(summary.ranges.unfit, summary.ranges.idle) if summary.ranges is not None else None,
        missing=ring.unserved if unresolved is None else (),
        unanswered=ring.unanswered if unresolved is None else unresolved.unanswered,
        not_in_force=_not_in_force(ring),
        denied=denied,
        unsettled=counts if counts or settled else None,
        resynced=summary.resynced,
        refused=summary.refused,
        moving=summary.ranges.moving if summary.ranges is not None else None,
        stuck_drains=(str(stuck),) if stuck is not None else (),
        overdue_before=summary.overdue_before,
        stuck_unlisted=stuck is not None and stuck.removed,
        leaving=tuple(sorted(summary.leaving.items())),
        joining=tuple(sorted(summary.joining.items())),
        waiting=summary.waiting,
    )


def _render_unwatched(answer: str) -> str:
    return (
        f"{WEBHOOK_CONFIGURATIONS.group_resource} cannot be read: {answer}; the ring's, if somebody changes or deletes"
        " it, is put right after some minutes only; let the sharder list and watch them (its own ClusterRole)"
    )


def _held_as(ring: RingSnapshot, shard: str) -> list[str]:
    """The leases that shards of that name hold, as `namespace/name`."""
    held = (seen.lease.metadata for seen in ring.leases_named(shard) if seen.lease.held_by_shard)
    return sorted(f"{each.namespace}/{each.name}" for each in held)


def _controlled_as_main(ring: RingSnapshot) -> tuple[tuple[GroupResource, tuple[str, ...]], ...]:
    """What the ring lists as controlled, with the shards that reconcile it as main; ranges know no such difference."""
    if ring.resolved is None or ring.resolved.spec.assign_by is AssignBy.RANGES:
        return ()
    controlled = (each.resource.group_resource for each in ring.resolved.subjects() if each.role is Role.CONTROLLED)
    return tuple((each, shards) for each in controlled if (shards := ring.membership.shards_with_main(each)))


def _not_reconciled(ring: RingSnapshot) -> tuple[tuple[GroupResource, tuple[str, ...]], ...]:
    """What the ring lists as main, with the shards that say what they reconcile, and not this."""
    mains = (each.resource.group_resource for each in (ring.resolved.mains if ring.resolved is not None else ()))
    return tuple((each, shards) for each in mains if (shards := ring.membership.shards_without_main(each)))


def _generation(ring: RingSnapshot) -> int:
    """That of the spec which the conditions speak of; the object's may be newer, while that is looked up."""
    if ring.unresolved is not None:
        return ring.unresolved.generation
    return ring.resolved.spec.generation if ring.resolved is not None else ring.obj.metadata.generation


def _not_in_force(ring: RingSnapshot) -> NotInForce | None:
    if ring.unresolved is None:
        return None
    return NotInForce(ring.unresolved.since, ring.resolved.spec.generation if ring.resolved is not None else None)


def _was(status: Mapping[str, Any], condition: str, value: str) -> bool:
    """Whether a condition had the status `value`."""
    conditions = status.get("conditions")
    return any(
        isinstance(each, Mapping) and each.get("type") == condition and each.get("status") == value
        for each in (conditions if isinstance(conditions, list) else ())
    )


def _can_wait(before: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """That a ring is settled no longer is told at once; all other news about that can wait a moment."""
    return condition["type"] == ConditionType.SETTLED and not _was(before, ConditionType.SETTLED, "True")
