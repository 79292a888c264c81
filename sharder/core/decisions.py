"""Who owns an object: the one decision that webhook and placement loop both take.

Does: look up a literal table, after the few rules that come before it.  Refuses:
to act.  A MOVE or RELEASE takes an object away from a shard that is gone, and
only who holds that shard's lease may carry it out.

Rules before the table, first match wins:

1. A controlled object without a ring key is not ours.
2. On a name that two leases claim, nothing moves.
3. A draining main object waits for its shard, as long as that is available.
4. An object that left the ring's scope is drained and released (LEAVING); so is what was a main object and has no key.
5. Without a place to go (no shard, owner unassigned or on no available shard) it waits.
6. TABLE; but nothing is drained toward a shard that something speaks against
   (`NotNow`), and what no available shard has goes past a silent one.  Where an
   object is to go, none that is about to leave counts, unless all are.

A drain label on a controlled object means nothing: shards acknowledge for main
objects only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, Self, assert_never

from sharder.core.membership import Membership, NotNow
from sharder.core.ringspec import Role
from shardsdk.protocol.objects import SlimMeta


class Situation(Enum):
    """Where an object is, seen from where it should be."""

    NOBODY = "nobody"
    DESIRED = "its shard (desired)"
    OTHER_AVAILABLE = "other, available"
    STRANDED = "stranded"


class Decision(Enum):
    """What to do with an object; the value says it in words."""

    ASSIGN = "label it with the target"
    KEEP = "leave it where it is"
    DRAIN = "ask its shard to let go"
    MOVE = "label it with the target instead of its shard"
    DEFER = "not now; look again when something changes"
    IGNORE = "not ours"
    AWAIT = "wait for its shard to acknowledge the drain"
    RELEASE = "take both labels off"


_Table = Mapping[tuple[Role, Situation], Decision]

#: Inside the ring's scope, when it is known where the object should be.
TABLE: Final[_Table] = MappingProxyType(
    {
        (Role.MAIN, Situation.NOBODY): Decision.ASSIGN,
        (Role.MAIN, Situation.DESIRED): Decision.KEEP,
        (Role.MAIN, Situation.OTHER_AVAILABLE): Decision.DRAIN,
        (Role.MAIN, Situation.STRANDED): Decision.MOVE,
        (Role.CONTROLLED, Situation.NOBODY): Decision.ASSIGN,
        (Role.CONTROLLED, Situation.DESIRED): Decision.KEEP,
        (Role.CONTROLLED, Situation.OTHER_AVAILABLE): Decision.MOVE,
        (Role.CONTROLLED, Situation.STRANDED): Decision.MOVE,
    }
)

#: Outside the ring's scope. A controlled object on an available shard waits
#: while its owner has a shard: the owner goes first, by acknowledgement.
LEAVING: Final[_Table] = MappingProxyType(
    {
        (Role.MAIN, Situation.NOBODY): Decision.KEEP,
        (Role.MAIN, Situation.DESIRED): Decision.DRAIN,
        (Role.MAIN, Situation.OTHER_AVAILABLE): Decision.DRAIN,
        (Role.MAIN, Situation.STRANDED): Decision.RELEASE,
        (Role.CONTROLLED, Situation.NOBODY): Decision.KEEP,
        (Role.CONTROLLED, Situation.DESIRED): Decision.RELEASE,
        (Role.CONTROLLED, Situation.OTHER_AVAILABLE): Decision.RELEASE,
        (Role.CONTROLLED, Situation.STRANDED): Decision.RELEASE,
    }
)


@dataclass(frozen=True, slots=True)
class Target:
    """The object should be on the shard `name`; `by_owner`: because its owner is.

    `stand_in`: where it goes if no available shard has it and `name` is silent.
    """

    name: str
    by_owner: bool = False
    stand_in: str | None = None

    def now(self, membership: Membership) -> str:
        """Where to put what no available shard has."""
        return self.stand_in if self.stand_in is not None and self.name in membership.silent else self.name


@dataclass(frozen=True, slots=True)
class NoKey:
    """Nothing in the ring controls the object."""


@dataclass(frozen=True, slots=True)
class NoShard:
    """No shard is available."""


@dataclass(frozen=True, slots=True)
class OwnerUnassigned:
    """The owner has no shard yet; the object follows it."""


@dataclass(frozen=True, slots=True)
class OwnerMoves:
    """The owner is being given to a shard together with what it controls; the object is with it afterwards."""


@dataclass(frozen=True, slots=True)
class OwnerUnavailable:
    """The owner is labelled with the shard `name`, which is not available; both move as a group."""

    name: str


Desired = Target | NoKey | NoShard | OwnerUnassigned | OwnerMoves | OwnerUnavailable


_NOT_NOW: Final = [each.value for each in NotNow]


class Reason(StrEnum):
    """Why, for logs and metrics; `words` say it of an object to people, as part of a sentence."""

    words: str

    def __new__(cls, value: str, words: str) -> Self:
        """One reason with its words."""
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.words = words
        return reason

    NO_KEY = "no_key", "it is controlled by nothing in the ring"
    AMBIGUOUS_SHARD = "ambiguous_shard", "two leases claim the name of its shard, so nothing is moved"
    UNFIT_SHARD = "unfit_shard", "its shard gets nothing because of what its Lease says, and keeps what it has"
    DRAINING = "draining", "it carries the drain label, and its shard is available"
    LEFT_SCOPE = "left_scope", "its namespace or resource is no longer in the ring"
    OWNER_STILL_ASSIGNED = "owner_still_assigned", "it left the ring, but its owner still has a shard, and goes first"
    NO_SHARD_AVAILABLE = "no_shard_available", "no shard of the ring is available"
    OWNER_UNASSIGNED = "owner_unassigned", "its owner has no shard yet; it follows its owner"
    OWNER_MOVES = "owner_moves", "its owner is being given to a shard; it goes with it"
    OWNER_UNAVAILABLE = "owner_unavailable", "its owner's shard is not available; both move together"
    TARGET_UNAVAILABLE = "target_unavailable", "the shard where it belongs is not available"
    TARGET_NOT_READY = (
        "target_not_ready",
        f"nothing is drained toward the shard where it belongs, which {', '.join(_NOT_NOW[:-1])}, or {_NOT_NOW[-1]}",
    )
    TABLE = "table", "as the table says"


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the decision depends on.

    `role`: MAIN also for what is controlled and may be a main object to its shard still.
    `shard_label` None: the object does not carry it. `draining`: it carries the
    drain label. `in_scope`: its namespace and resource belong to the ring.
    """

    role: Role
    shard_label: str | None
    draining: bool
    in_scope: bool
    desired: Desired
    membership: Membership


@dataclass(frozen=True, slots=True)
class Outcome:
    """The decision; `target` is the shard meant by ASSIGN, MOVE and DRAIN (None for a DRAIN out of the ring)."""

    decision: Decision
    target: str | None
    reason: Reason


def desire_main(key: str | None, membership: Membership) -> Desired:
    """Where a main object with this key should be: the ring's answer."""
    if key is None:
        return NoKey()
    name = membership.target(key)
    return NoShard() if name is None else Target(name, stand_in=membership.stand_in(key))


def is_owner(uid: str, found: SlimMeta | None) -> bool:
    """Whether what was found under an owner's name is the owner, with this uid, and not another of that name.

    An owner reference without uid comes only before the API server has looked at it.
    """
    return found is not None and uid in ("", found.uid)


def desire_controlled(
    key: str | None,
    membership: Membership,
    *,
    owner_exists: bool,
    owner_label: str | None,
    owner_moves: bool,
) -> Desired:
    """Where a controlled object should be: with its owner; the ring's answer only if there is no owner.

    `key` is that of the owner; `owner_label` is the shard label that the owner
    carries now, None when it carries none.  `owner_moves`: its family is under way, as far as who asks can know.
    """
    if key is None or not owner_exists:
        return desire_main(key, membership)
    if owner_moves:
        return OwnerMoves()
    if owner_label is None:
        return OwnerUnassigned()
    if owner_label not in membership.available:
        return OwnerUnavailable(owner_label)
    return Target(owner_label, by_owner=True)


def decide(facts: Facts) -> Outcome:
    """The decision for one object; total."""
    label, membership = facts.shard_label, facts.membership
    if isinstance(facts.desired, NoKey) and facts.role is Role.CONTROLLED:
        return Outcome(Decision.IGNORE, None, Reason.NO_KEY)
    if label in membership.ambiguous:
        return Outcome(Decision.DEFER, None, Reason.AMBIGUOUS_SHARD)
    if label in membership.unfit:
        return Outcome(Decision.DEFER, None, Reason.UNFIT_SHARD)
    if facts.role is Role.MAIN and facts.draining and label in membership.available:
        return Outcome(Decision.AWAIT, None, Reason.DRAINING)
    if isinstance(facts.desired, NoKey) or not facts.in_scope:
        return _decide_leaving(facts)
    match facts.desired:
        case NoShard():
            kept = label in membership.available
            return Outcome(Decision.KEEP if kept else Decision.DEFER, None, Reason.NO_SHARD_AVAILABLE)
        case OwnerUnassigned():
            return Outcome(Decision.DEFER, None, Reason.OWNER_UNASSIGNED)
        case OwnerMoves():
            return Outcome(Decision.DEFER, None, Reason.OWNER_MOVES)
        case OwnerUnavailable():
            return Outcome(Decision.DEFER, None, Reason.OWNER_UNAVAILABLE)
        case Target() as target:
            return _decide_target(facts, target)
        case _:
            assert_never(facts.desired)


def is_misplaced(facts: Facts, outcome: Outcome) -> bool:
    """Whether an available shard has the object that is to go to another, or to none, at once or later."""
    leaves = outcome.decision in (Decision.DRAIN, Decision.MOVE, Decision.RELEASE)
    return (leaves or outcome.reason is Reason.TARGET_NOT_READY) and facts.shard_label in facts.membership.available


def situation_of(label: str | None, target: str | None, membership: Membership) -> Situation:
    """Where an object labelled `label` is, when it should be on `target`."""
    if label is None:
        return Situation.NOBODY
    if label not in membership.available:
        return Situation.STRANDED
    return Situation.DESIRED if label == target else Situation.OTHER_AVAILABLE


def _decide_target(facts: Facts, target: Target) -> Outcome:
    membership, name = facts.membership, target.name
    if name not in membership.available:
        return Outcome(Decision.DEFER, None, Reason.TARGET_UNAVAILABLE)
    situation = situation_of(facts.shard_label, name, membership)
    decision = TABLE[facts.role, situation]
    if decision is Decision.DRAIN and not membership.may_drain_to(name):
        return Outcome(Decision.DEFER, None, Reason.TARGET_NOT_READY)
    if situation in (Situation.NOBODY, Situation.STRANDED):
        name = target.now(membership)
    return Outcome(decision, None if decision is Decision.KEEP else name, Reason.TABLE)


def _decide_leaving(facts: Facts) -> Outcome:
    situation = situation_of(facts.shard_label, None, facts.membership)
    follows = isinstance(facts.desired, OwnerUnavailable) or (
        isinstance(facts.desired, Target) and facts.desired.by_owner
    )
    controlled, labelled = facts.role is Role.CONTROLLED, situation is not Situation.NOBODY
    if controlled and labelled and isinstance(facts.desired, OwnerMoves):
        # Let go of now, it would be missing where its owner is about to be.
        return Outcome(Decision.DEFER, None, Reason.OWNER_MOVES)
    if controlled and situation is Situation.OTHER_AVAILABLE and follows:
        return Outcome(Decision.DEFER, None, Reason.OWNER_STILL_ASSIGNED)
    return Outcome(LEAVING[facts.role, situation], None, Reason.LEFT_SCOPE)


def render_table(table: _Table = TABLE) -> str:
    """The table as Markdown, for the documentation."""
    lines = [
        "| | " + " | ".join(situation.value for situation in Situation) + " |",
        "|---" * (len(Situation) + 1) + "|",
    ]
    rows = [f"| {role.value} | " + " | ".join(table[role, each].name for each in Situation) + " |" for role in Role]
    return "\n".join(lines + rows)
