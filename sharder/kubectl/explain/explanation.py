"""Why an object is where it is, in one ring: the sharder's own decision about it, put into words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote
from typing import assert_never

from sharder.core.decisions import (
    Decision,
    Desired,
    Facts,
    NoShard,
    Outcome,
    Reason,
    Target,
    decide,
    desire_controlled,
    desire_main,
)
from sharder.core.membership import Membership
from sharder.core.observed import Says, presumed_seconds, says
from sharder.core.problems import MAX_QUOTED, some
from sharder.core.ringspec import ResolvedRing, Role, Subject
from sharder.kubectl.leader import Leading
from sharder.kubectl.selecting import describe_selector
from sharder.kubectl.shards import ShardStatus
from sharder.kubectl.status.overview import Condition
from sharder.kubectl.text import plural, span
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import GroupResource, ObjectMeta

#: Shards that a sentence names before it only counts.
_NAMED = 8
#: Why an object with a ring's labels shall have none.
REMOVED = "the ring lists its resource no longer"


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller of an object; `exists` None: it could not be read."""

    kind: str
    name: str
    exists: bool | None
    label: str | None = None
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """All that is known about one object in one ring.

    `membership` None: the leases could not be read.  `covered` None: the
    namespace could not.  `leading` None: nothing is known of a leading sharder.
    `joining`: what its main resource controls, and what was main until the ring was edited; shards have not let go of
    all of it.  `removed`: the ring lists its resource no longer, and so covers it nowhere.
    `leases`: those of the ring that could be read.
    """

    ring: ResolvedRing
    subject: Subject
    meta: ObjectMeta
    owner: Owner | None
    membership: Membership | None
    shard_statuses: tuple[ShardStatus, ...]
    covered: bool | None
    conditions: tuple[Condition, ...]
    up_to_date: bool
    leading: Leading | None
    joining: tuple[GroupResource, ...] = ()
    removed: bool = False
    leases: tuple[Lease, ...] = ()

    @property
    def role(self) -> Role:
        """As what it changes hands."""
        return Role.MAIN if self.subject.resource.group_resource in self.joining else self.subject.role

    def once_held(self, shard: str) -> str:
        """When the sharder can move what a shard has that holds its lease no more."""
        named = [each for each in self.leases if each.metadata.name == shard]
        seconds = max(presumed_seconds(each, self.leases) for each in named or (None,))
        strangers = sorted({each.holder[:MAX_QUOTED] for each in named if says(each) is Says.STRANGER})
        once = f"once it holds the lease of {shard}"
        if strangers:
            return f"{once}, {span(seconds)} after {some(strangers)}, who holds that, has renewed it last"
        # What a Lease said that is gone, the leader alone knows.
        longer = "; longer if one of a longer duration was deleted (ShardsAvailable says until when)"
        return f"{once}: within {span(seconds)}, as a rule" + (longer if not named else "")


@dataclass(frozen=True, slots=True)
class Explanation:
    """One object in one ring.

    `outcome` None: too little is known.  `in_place`: nothing has to happen.
    `missing`: what keeps it from being worked on, each with its remedy.
    """

    ring: str
    role: Role
    key: str | None
    current: str | None
    draining: bool
    shard_status: str
    desired: str | None
    outcome: Outcome | None
    because: tuple[str, ...]
    then: str
    missing: tuple[str, ...]
    in_place: bool | None


def explain(known: Known) -> Explanation:
    """Why, and what next."""
    labels = known.ring.spec.labels
    current = known.meta.label(labels.shard)
    draining = known.meta.label(labels.drain) is not None
    key, desired = _desired(known)
    outcome = None
    if known.membership is not None and known.covered is not None and desired is not None:
        outcome = decide(Facts(known.role, current, draining, known.covered, desired, known.membership))
    where = _where(desired) if known.covered is not False else None
    return Explanation(
        ring=known.ring.spec.name,
        role=known.subject.role,
        key=key,
        current=current,
        draining=draining,
        shard_status=describe_shard(known, current),
        desired=where,
        outcome=outcome,
        because=tuple(_because(known, key, desired)),
        then=_then(known, outcome, current, where)
        if outcome is not None
        else "not known: not everything could be read",
        missing=tuple(_missing(known, outcome, current)),
        in_place=None if outcome is None else outcome.decision in (Decision.KEEP, Decision.IGNORE),
    )


def _desired(known: Known) -> tuple[str | None, Desired | None]:
    if known.removed:
        # It shall have no shard at all; whose child it was is not known any more.
        return None, NoShard()
    key = known.subject.key_of(known.meta)
    if known.membership is None:
        return key, None
    if known.subject.role is Role.MAIN or key is None:
        return key, desire_main(key, known.membership)
    owner = known.owner
    if owner is None or owner.exists is None:
        return key, None
    return key, desire_controlled(
        key, known.membership, owner_exists=owner.exists, owner_label=owner.label, owner_moves=False
    )


def _where(desired: Desired | None) -> str | None:
    return desired.name if isinstance(desired, Target) else None


# -- why it belongs there ------------------------------------------------------


def _because(known: Known, key: str | None, desired: Desired | None) -> Iterator[str]:
    main, owner = known.subject.main.resource, known.owner
    if known.removed:
        yield REMOVED
        return
    if known.covered is False:
        selector = describe_selector(known.ring.namespace_selector)
        yield f"namespace {known.meta.namespace} is outside the ring's scope ({selector})"
    if known.covered is None:
        yield f"whether namespace {known.meta.namespace} belongs to the ring could not be read"
    if key is None:
        reference = known.meta.controller
        has = f"its controller is {reference.kind} {reference.name}" if reference else "it has no controller reference"
        yield f"{has}; the ring takes {known.subject.resource.plural} whose controller is a {main.kind}"
        return
    if owner is not None and owner.exists:
        on = f"on shard {owner.label}" if owner.label is not None else "on no shard"
        yield f"children follow their owner: {owner.kind} {owner.name} is {on}" + (", draining" * owner.draining)
        return
    if owner is not None and owner.exists is False:
        yield f"its owner, {owner.kind} {owner.name}, is not there; so the hash of the owner's key decides"
    elif owner is not None:
        yield f"its owner, {owner.kind} {owner.name}, could not be read"
        return
    if known.membership is None:
        yield "the shards' leases could not be read"
    elif isinstance(desired, Target):
        shards = sorted(known.membership.available)
        listed = some(shards, _NAMED)
        yield f"the hash of its key falls to {desired.name}, of {plural(len(shards), 'available shard')}: {listed}"


# -- what happens next ---------------------------------------------------------


def _then(known: Known, outcome: Outcome, current: str | None, where: str | None) -> str:
    match outcome.decision:
        case Decision.ASSIGN:
            return f"the sharder gives it to {outcome.target}, as a rule within a second"
        case Decision.KEEP:
            if outcome.reason is Reason.LEFT_SCOPE:
                return "no shard works on it, and none shall"
            if outcome.reason is Reason.NO_SHARD_AVAILABLE:
                return f"it stays with {current}, though no other shard is there"
            return "it is where it belongs"
        case Decision.DRAIN if outcome.target is not None and known.joining and known.subject.role is Role.MAIN:
            return (
                f"it stays with {current} until all {some(map(str, known.joining))} are with their owners, which the"
                f" ring lists as controlled now (condition Settled); then {outcome.target} gets it"
            )
        case Decision.DRAIN:
            whither = f"{outcome.target} gets it" if outcome.target else "it is nobody's"
            return f"the next resync asks {current} to let go of it (drain label); then {whither}"
        case Decision.AWAIT:
            return (
                f"{current} has been asked to let go (drain label) and has not acknowledged that yet (one write that"
                " takes both labels off and does nothing else)"
            )
        case Decision.MOVE if known.role is Role.MAIN and current is not None:
            if not any(each.taken_over for each in known.shard_statuses if each.name == current):
                return f"the sharder moves it to {outcome.target} {known.once_held(current)}"
            return (
                f"the sharder moves it to {outcome.target}: it holds the lease of {current}; if this stays, an Event"
                f" PlacementRefused says why (kubectl describe clusterring {known.ring.spec.name})"
            )
        case Decision.MOVE:
            return f"the sharder moves it to {outcome.target}, where its owner is"
        case Decision.RELEASE if known.removed and known.role is Role.CONTROLLED:
            return "the sharder takes the labels off, once the owners that leave the ring have left their shards"
        case Decision.RELEASE:
            return "the sharder takes the labels off: it left the ring's scope"
        case Decision.IGNORE:
            return "the ring leaves it alone"
        case Decision.DEFER:
            return f"it waits: {_waits(known, outcome, where)}"
        case _:
            assert_never(outcome.decision)


def _waits(known: Known, outcome: Outcome, where: str | None) -> str:
    """For what, of which `where` is the shard where it belongs."""
    if outcome.reason is Reason.TARGET_NOT_READY and known.membership is not None and where is not None:
        why = known.membership.why_not_drain_to(where)
        if why is not None:
            return f"nothing is drained toward {where}, where it belongs and which {why.value}"
    return outcome.reason.words


# -- what is missing -----------------------------------------------------------


def _missing(known: Known, outcome: Outcome | None, current: str | None) -> Iterator[str]:
    if outcome is None or outcome.decision in (Decision.KEEP, Decision.IGNORE):
        return
    name = known.ring.spec.name
    match outcome.reason:
        case Reason.NO_SHARD_AVAILABLE:
            yield (
                f"an available shard: start one (a Lease labelled {LEASE_RING_LABEL}={name}, held by the shard that it"
                " is named after)"
            )
        case Reason.AMBIGUOUS_SHARD:
            yield f"a name of its own for each shard: {current} is held in more than one namespace"
        case Reason.UNFIT_SHARD:
            yield f"what the ring's condition ShardsFit asks for: it is about the Lease of {current}"
        case Reason.OWNER_UNASSIGNED | Reason.OWNER_UNAVAILABLE if known.owner is not None:
            owner = known.subject.main.resource.group_resource
            space = f" -n {known.meta.namespace}" if known.subject.main.resource.namespaced else ""
            # A Role may be called as whoever makes it likes, with `;` and `$(`.
            yield f"a shard for its owner: `kubectl sharding explain {owner} {quote(known.owner.name)}{space}`"
        case Reason.DRAINING:
            yield f"the answer of {current}: look into its log, or stop it, and its objects move without it"
        case _:
            pass
    yield from unable(known)


def unable(known: Known) -> Iterator[str]:
    """What keeps the sharder from doing its part."""
    if known.leading is not None and not known.leading.alive:
        yield f"a sharder: {known.leading.words}; start it, or look into its log"
    if not known.up_to_date:
        yield "a sharder that has seen the ring's present spec"
    for each in known.conditions:
        if each.status is False and each.type in ("Ready", "PermissionsGranted"):
            yield f"ring condition {each.type} is false: {each.message}"
        if each.status is False and (each.type, each.reason) == ("Settled", "Refused"):
            yield (
                "an API server that takes the sharder's writes: it refuses to change some objects, of which the Event"
                f" PlacementRefused has one, and why (kubectl describe clusterring {known.ring.spec.name})"
            )


def describe_shard(known: Known, current: str | None) -> str:
    """What the lease of the shard called `current` says, in a few words; nothing of no shard."""
    if current is None:
        return ""
    found = [each for each in known.shard_statuses if each.name == current]
    if not found:
        return "no lease of that name" if known.membership is not None else "lease not read"
    if len(found) > 1:
        return f"{len(found)} leases of that name, in {', '.join(each.namespace for each in found)}"
    [one] = found
    return f"{one.state.value}, renewed {one.renewed}" + (", being emptied" * one.taken_over)
