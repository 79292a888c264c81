"""A ring's status: what its user needs to know, as conditions.

Does: render counts and conditions, each with its remedy; true is always good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sharder.core.conditions import Condition, ConditionReason, ConditionType, render_time, stamp
from sharder.core.problems import Problem, render_problems, some
from sharder.core.rights import OWN_RULES, MissingRule, render_denied
from sharder.core.summary import render_left
from shardsdk.protocol.labels import LEASE_CONTROLLERRING_LABEL, LEASE_RING_LABEL
from shardsdk.protocol.leases import DEFAULT_DURATION_SECONDS, MAX_DURATION_SECONDS
from shardsdk.protocol.objects import LEASES, GroupResource

_READS: Final = ("list", "watch")
#: Reasons of `ShardsAvailable` for shards that are gone, and that nobody takes over.
NOT_WORKED_ON: Final = (ConditionReason.NOT_TAKEN_OVER, ConditionReason.NOBODY_READY)


@dataclass(frozen=True, slots=True)
class Unsettled:
    """How many objects are not where they should be; all zero: settled.

    Of `misplaced` ones, on another shard that is available, nobody keeps count: the last resync has found some.
    """

    unassigned: int = 0
    stranded: int = 0
    draining: int = 0
    misplaced: bool = False

    def __bool__(self) -> bool:
        return any((self.unassigned, self.stranded, self.draining, self.misplaced))


@dataclass(frozen=True, slots=True)
class NotInForce:
    """The ring's newest spec cannot be looked up, `since` when; the one before is in use (None: none is)."""

    since: datetime
    in_use: int | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a ring, as the spec of that `generation` asks for it.

    `problems`: why it cannot be used; then nothing else is looked at.
    `failure`: what keeps failing, in words (None: nothing). `unread`: resources that
    could not be read for a while, each with why. `not_in_force`: that
    spec is not used yet, since none of its resources are known. `unsettled` None: no
    resync has ended yet or, if `resynced`, none since shards came or went, or objects moved.
    `refused`: the API server refuses to change some of them. `moving`: which ranges of hashes change hands;
    `overlapping`: that several shards hold one, `unfit`: why shards get none, each as a reason and in words.
    `remarks`: what else is to be known of Leases. `ambiguous`: those, as `namespace/name`, whose name more than one
    holds. `unsteady`, `unrenewed`, `shards_leaving`, `shards_left`, `mixed`, `overlong`: as of
    `Membership`; `as_main`: what the ring lists as controlled and shards reconcile as main, and which;
    `not_reconciled`: what it lists as main and shards do not reconcile, and which.
    `taken`: names of shards that are gone whose Lease is somebody else's by now, each with
    why that keeps their objects where they are; `not_acquired`: why their Lease cannot be
    acquired, `abandoned`: Leases that ran out while nobody is ready to take over, both of shards
    that count as available no more.  `shards_before`: reason and message by which shards like
    that were told of before, `overdue_before`: drains that were overdue, while none is known
    yet.  `stuck_drains` names the objects whose drain is overdue most;
    `stuck_unlisted`: the ring lists their resource no longer. `leaving`: resources
    like that, with how many objects have labels still (-1: not counted yet); `joining`: ones that
    were main and are controlled now, with how many objects are not with their owners (likewise). `waiting`:
    what is new on the list, and not in force yet for want of rights.
    """

    generation: int
    problems: tuple[Problem, ...] = ()
    failure: str | None = None
    unread: tuple[tuple[GroupResource, str], ...] = ()
    shards: int = 0
    available: int = 0
    ambiguous: tuple[str, ...] = ()
    unusable: frozenset[str] = frozenset()
    unsteady: frozenset[str] = frozenset()
    unrenewed: frozenset[str] = frozenset()
    shards_leaving: frozenset[str] = frozenset()
    shards_left: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    overlapping: tuple[ConditionReason, str] | None = None
    unfit: tuple[ConditionReason, str] | None = None
    mixed: frozenset[str] = frozenset()
    overlong: frozenset[str] = frozenset()
    as_main: tuple[tuple[GroupResource, tuple[str, ...]], ...] = ()
    not_reconciled: tuple[tuple[GroupResource, tuple[str, ...]], ...] = ()
    taken: tuple[str, ...] = ()
    not_acquired: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()
    shards_before: tuple[ConditionReason, str] | None = None
    missing: tuple[GroupResource, ...] = ()
    unanswered: tuple[tuple[GroupResource, str], ...] = ()
    not_in_force: NotInForce | None = None
    denied: tuple[MissingRule, ...] = ()
    unsettled: Unsettled | None = None
    resynced: bool = False
    refused: bool = False
    moving: str | None = None
    stuck_drains: tuple[str, ...] = ()
    stuck_unlisted: bool = False
    overdue_before: tuple[ConditionReason, str] | None = None
    leaving: tuple[tuple[GroupResource, int], ...] = ()
    joining: tuple[tuple[GroupResource, int], ...] = ()
    waiting: tuple[GroupResource, ...] = ()


def render_status(health: Health, previous: Mapping[str, Any] | None, now: datetime) -> dict[str, Any]:
    """The whole status; equal to `previous` when nothing changed. Conditions of others stay."""
    return {
        "observedGeneration": health.generation,
        "shards": health.shards,
        "availableShards": health.available,
        "conditions": stamp(conditions_of(health), previous, health.generation, now),
    }


def conditions_of(health: Health) -> tuple[Condition, ...]:
    """Every condition, in order."""
    if health.problems:
        message = " | ".join(filter(None, (render_problems(health.problems), health.failure)))
        others = [each for each in ConditionType if each is not ConditionType.READY]
        return (
            Condition(ConditionType.READY, False, ConditionReason.RECONCILIATION_FAILED, message),
            *(
                Condition(each, None, ConditionReason.RING_NOT_USED, "the ring cannot be used; see Ready")
                for each in others
            ),
        )
    judged = (
        _resources_served(health),
        _permissions_granted(health),
        _shards_available(health),
        _shard_names_unique(health),
        _shards_fit(health),
        _drains_acknowledged(health),
        _settled(health),
    )
    return (_ready(health, judged[0], judged[1]), *judged)


def _ready(health: Health, served: Condition, granted: Condition) -> Condition:
    """Without `watch` on its resources a ring works, at the pace of resyncs; without another right it does not.

    What it takes to place objects that grant rights, it does for many of them without.
    """
    wrong = [health.failure] if health.failure is not None else []
    if health.unread:
        wrong.append(_unread(health.unread))
    if health.missing or health.unanswered:
        wrong.append(served.message)
    if any(rule in OWN_RULES or not (rule.verb == "watch" or rule.is_to_grant) for rule in health.denied):
        wrong.append(granted.message)
    if wrong:
        return Condition(ConditionType.READY, False, ConditionReason.RECONCILIATION_FAILED, " | ".join(wrong))
    return Condition(ConditionType.READY, True, ConditionReason.RECONCILIATION_SUCCEEDED, "the ring is in use")


def _unread(unread: Sequence[tuple[GroupResource, str]]) -> str:
    return (
        f"{some(str(name) for name, _ in unread)} cannot be read: {unread[0][1]}; what is new or changes there may not"
        " be seen, so that objects are without a shard, or stay on one that is gone; this is tried again and again"
    )


def _resources_served(health: Health) -> Condition:
    kind = ConditionType.RESOURCES_SERVED
    if not health.missing and health.unanswered:
        name, error = health.unanswered[0]
        message = (
            f"whether the API server serves {some(str(each) for each, _ in health.unanswered)} is not known: {error};"
            f" {_held_up(health.not_in_force)}; look at `kubectl get apiservices` for group {name.group or 'core'}"
        )
        return Condition(kind, False, ConditionReason.NOT_ANSWERED, message)
    if not health.missing:
        return Condition(kind, True, ConditionReason.SERVED, "the API server serves every resource of the ring")
    message = (
        f"the API server does not serve {some(map(str, health.missing))}, or not for list, watch and patch;"
        " install their CustomResourceDefinitions, or correct group and plural in spec.resources"
    )
    return Condition(kind, False, ConditionReason.NOT_SERVED, message)


def _held_up(spec: NotInForce | None) -> str:
    """What waits for those that do not answer."""
    if spec is None:
        return "they wait, and so do the owners of those and what these control, while the rest is placed"
    waits = "nothing of the ring is placed"
    if spec.in_use is not None:
        waits = f"the ring is used as it was before it was edited (generation {spec.in_use})"
    return f"until it is, {waits}; this is tried again and again since {render_time(spec.since)}"


def _permissions_granted(health: Health) -> Condition:
    kind = ConditionType.PERMISSIONS_GRANTED
    if not health.denied and health.not_in_force is not None:
        return Condition(
            kind, None, ConditionReason.NOT_YET_KNOWN, "it is not known yet on which resources; see ResourcesServed"
        )
    if not health.denied:
        return Condition(kind, True, ConditionReason.GRANTED, "the sharder may do what the ring needs")
    return Condition(kind, False, ConditionReason.FORBIDDEN, render_denied(health.denied))


def _shards_available(health: Health) -> Condition:
    kind = ConditionType.SHARDS_AVAILABLE
    if _reads_no_leases(health):
        # Which of them live nobody knows; what to do about one that seems gone would do harm to one that is not.
        message = (
            f"{health.available} of {health.shards} shards were available when the sharder could follow Leases last;"
            " see Ready"
        )
        return Condition(kind, None, ConditionReason.CANNOT_BE_READ, message)
    message = f"{health.available} of {health.shards} shards are available"
    if health.abandoned:
        message += (
            f"; {some(health.abandoned)} ran out, and no other shard is ready to take over what its shard has; start"
            " that shard again, or another one of this ring"
        )
    if health.not_acquired:
        message += (
            f"; {some(health.not_acquired)}; let the sharder list, create and patch Leases (its ClusterRole, and"
            " whatever policy or webhook refuses that); it is tried again by itself"
        )
    if health.not_acquired or health.abandoned:
        return Condition(kind, False, NOT_WORKED_ON[0 if health.not_acquired else 1], message)
    if health.available:
        if health.shards_before is not None:
            return Condition(kind, False, *health.shards_before)
        if health.unsteady:
            message += (
                f"; {some(sorted(health.unsteady))} crashed lately, and what others have is handed over to it once it"
                " has held its lease for a while; if it crashes again and again, its log says why"
            )
        if health.unrenewed:
            message += (
                f"; the Lease of {some(sorted(health.unrenewed))} was out of date when it was first seen, and nobody"
                " has renewed it since: nothing is handed over to it before that; one that a backup brought back runs"
                " out by itself"
            )
        if health.shards_leaving:
            alone = len(health.shards_leaving) >= health.available
            message += f"; {some(sorted(health.shards_leaving))} will leave soon: " + (
                "there is no other, so what is new goes there and waits; start a shard of this ring"
                if alone
                else "nothing new goes there, and what is there moves if others can take it"
            )
        if health.shards_left:
            message += (
                f"; {some(sorted(health.shards_left))} ended with a restart grace: what is there waits for the next"
                " process of that name, or until the Lease has run out"
            )
        return Condition(kind, True, ConditionReason.AVAILABLE, "; ".join((message, *health.remarks)))
    message = f"none of {health.shards} shards is available, new objects wait unassigned; start a shard of this ring"
    return Condition(kind, False, ConditionReason.NO_SHARD, "; ".join((message, *health.remarks)))


def _reads_no_leases(health: Health) -> bool:
    leases = LEASES.group_resource
    unread = any(resource == leases for resource, _ in health.unread)
    return unread or any(MissingRule(verb, leases) in health.denied for verb in _READS)


def _shard_names_unique(health: Health) -> Condition:
    kind = ConditionType.SHARD_NAMES_UNIQUE
    if health.ambiguous:
        message = (
            f"the Leases {some(health.ambiguous)} are held by shards of one name in more than one namespace; they get"
            " nothing, and what they have stays where it is (a range that may be either's goes to others); give each"
            " shard of the ring a name of its own, and delete the Lease that is no shard's, where there is one"
        )
        return Condition(kind, False, ConditionReason.AMBIGUOUS, message)
    if health.unusable:
        message = (
            f"the shard name {some(sorted(health.unusable))} cannot be a label value; use at most 63"
            " lower-case letters, digits, '-' and '.'"
        )
        return Condition(kind, False, ConditionReason.NOT_A_LABEL_VALUE, message)
    if health.taken:
        return Condition(kind, False, ConditionReason.TAKEN_ELSEWHERE, some(health.taken))
    return Condition(kind, True, ConditionReason.UNIQUE, "every shard has a name of its own")


def _shards_fit(health: Health) -> Condition:
    kind, found = ConditionType.SHARDS_FIT, tuple(_unfit(health))
    if not found:
        return Condition(kind, True, ConditionReason.FIT, "every shard knows the way in which the ring assigns")
    (reason, message), *others = found
    if others:
        message += f"; once that is mended, {len(others)} more to mend: {some(other for other, _ in others)}"
    return Condition(kind, False, reason, message)


def _unfit(health: Health) -> Iterator[tuple[ConditionReason, str]]:
    """All that is wrong with shards that hold their Lease, the worst first."""
    if health.overlapping is not None:
        yield health.overlapping
    if health.mixed:
        message = (
            f"the Lease of {some(sorted(health.mixed))} has the labels {LEASE_RING_LABEL} and"
            f" {LEASE_CONTROLLERRING_LABEL}, so that nobody can tell by which labels its shard works: it gets nothing"
            " new, and what it has stays; if the library is v0.8, delete the second label; if it is v0.9 or newer,"
            " stop the shard or rename it, and delete the Lease: then its objects move"
        )
        yield ConditionReason.LIBRARIES_MIXED, message
    if health.overlong:
        message = (
            f"the Lease of {some(sorted(health.overlong))} is held for more than {MAX_DURATION_SECONDS} s, so that its"
            " shard gets nothing new, and what it has stays; give its shard a shorter lease, or, where there is no such"
            f" shard, patch the Lease's spec.leaseDurationSeconds to {DEFAULT_DURATION_SECONDS}: then it runs out, and"
            " what it has moves (a Lease that is deleted counts as held for as long as it said, up to"
            f" {MAX_DURATION_SECONDS} s)"
        )
        yield ConditionReason.LEASE_TOO_LONG, message
    if health.unfit is not None:
        yield health.unfit
    if health.as_main:
        message = (
            f"shards reconcile as main objects what the ring lists as controlled: {_which(health.as_main)}, so that two"
            " may reconcile one object once status.placedResources has it as controlled, since it moves with its owners"
            " then, and these shards are not asked; roll out the program that has it as a child, or list it as a main"
            " resource"
        )
        yield ConditionReason.CONTROLLED_AS_MAIN, message
    if health.not_reconciled:
        message = (
            f"shards do not reconcile what the ring lists as main: {_which(health.not_reconciled)}, so that nobody"
            " works on the objects that these get; finish the rollout of a program that does, take off the ring what"
            " none reconciles, list as controlled what shards own, or give programs with different main resources a"
            " ring each"
        )
        yield ConditionReason.NOT_RECONCILED, message


def _which(told: Sequence[tuple[GroupResource, tuple[str, ...]]]) -> str:
    """Resources, each with the shards that this is told of."""
    return " and ".join(f"{resource} on {some(shards)}" for resource, shards in told)


def _drains_acknowledged(health: Health) -> Condition:
    kind = ConditionType.DRAINS_ACKNOWLEDGED
    if not health.stuck_drains and health.overdue_before is not None:
        return Condition(kind, False, *health.overdue_before)
    if not health.stuck_drains:
        return Condition(kind, True, ConditionReason.ACKNOWLEDGED, "shards acknowledge drains in time")
    waiting = f"drains wait for their shard, the longest: {some(health.stuck_drains)}"
    if health.stuck_unlisted:
        message = (
            f"{waiting}, of a resource that the ring lists no longer; if no shard works on it (it was listed by"
            " mistake, or its shards stopped first), take both labels off these objects, or stop the shards they name"
        )
        return Condition(kind, False, ConditionReason.NOBODY_WATCHES, message)
    message = f"{waiting}; look into the shard's log, or stop the shard: its objects then move without it"
    return Condition(kind, False, ConditionReason.OVERDUE, message)


def _settled(health: Health) -> Condition:
    kind, counts = ConditionType.SETTLED, health.unsettled
    if health.moving is not None:
        return Condition(kind, False, ConditionReason.MOVING, health.moving)
    if not counts and (health.unread or any(rule in OWN_RULES and rule.verb in _READS for rule in health.denied)):
        return Condition(kind, None, ConditionReason.CANNOT_BE_READ, "nobody can tell; see Ready")
    if not counts and (health.not_acquired or health.abandoned or health.shards_before is not None):
        message = "what is on shards that are gone is worked on by nobody, and does not move; see ShardsAvailable"
        # Of what was told before it is known again, also while ShardsAvailable has worse to tell.
        said, before = _shards_available(health).reason, health.shards_before
        reason = before[0] if before is not None and said is ConditionReason.NO_SHARD else said
        return Condition(kind, False, reason, message)
    # What joins is not in its place, whether or not the rest is.
    if counts is None and (health.not_in_force is not None or not health.joining):
        why = "no resync has ended yet"
        if health.not_in_force is not None:
            why = "the ring's spec is not in use; see Ready"
        elif health.waiting:
            why = f"nothing of {some(map(str, health.waiting))} gets a shard before rights are granted"
            return Condition(kind, None, ConditionReason.WAITS_FOR_RIGHTS, f"{why}; see PermissionsGranted")
        elif health.resynced:
            why = "no resync has ended since shards came or went, or objects moved; that takes some seconds"
        return Condition(kind, None, ConditionReason.NOT_YET_KNOWN, why)
    left = render_left(health.leaving, health.joining)
    if not counts:
        if left:
            return Condition(kind, False, ConditionReason.LEAVING if health.leaving else ConditionReason.JOINING, left)
        return Condition(kind, True, ConditionReason.IN_PLACE, "every object is where it should be")
    found = "; the last resync has found objects that are not where they should be" if counts.misplaced else ""
    message = f"{counts.unassigned} unassigned, {counts.stranded} stranded, {counts.draining} draining{found}"
    if left:
        message += f"; {left}"
    if health.refused:
        message += "; the API server refuses to change some of them: the Event PlacementRefused has one, and its answer"
        return Condition(kind, False, ConditionReason.REFUSED, message)
    return Condition(kind, False, ConditionReason.MOVING, message)
