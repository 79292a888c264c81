"""In which order an owner changes hands together with the objects that it controls.

The order is what keeps two shards off one family, and whoever reconciles the owner
from missing a child.  TABLE is that order, one phase after the other:

1. The drain label is on the owner, and the API server has answered that: a shard
   that comes back works on the owner no more.
2. The fence, the hold on the shard's lease, is renewed by a write that begins after
   that answer: had the shard come back before its owner was drained, its lease would
   no longer be ours to renew.  From here on nobody works on the owner.
3. What was sent of single children before has ended: it may move one that is where
   the family goes, which the family leaves alone.
4. Children that watches show go first, since nobody has to wait for those.
5. That these are all is proven by watches, or one consistent read begins after the
   owner was let go (of many owners at once: after the last of them was).
6. All children are with the target before the owner is.  The owner goes last, and
   loses its drain label in the same write.

An owner that nobody has (acknowledged, or never placed) begins with the third.  What
has to hold before a step is looked at then, not before: shards come back while a
family moves.

An owner whose family cannot go on is tried again later, and starts over: all that is
kept is where its children have begun to go.  An owner that has changed by the time
that it is labelled, but for its labels, is labelled as it is then: nobody has worked on
it, so its children are all there still.  To read them anew may take longer than the
pause between two changes, and as long as those went on nobody would have the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from sharder.core.decisions import Target, desire_main
from sharder.core.membership import Membership


class Phase(Enum):
    """How far a family has come; the value says it in words."""

    UNREAD = "nobody knows whose the owner is: our last write of it had no answer"
    HELD = "the owner's shard is gone"
    DRAINED = "the owner carries the drain label"
    LET_GO = "nobody works on the owner from here on"
    ALONE = "nothing else moves a child of the owner from here on"
    AIMED = "it is known where the family goes"
    SHOWN = "watches show children that are not there yet"
    SHOWN_MOVED = "what watches have shown is there"
    UNKNOWN = "there may be more children than watches show"
    KNOWN = "all children that are not there yet are known"
    GATHERED = "all children are there"
    MOVED = "the owner is there, too"


class Step(Enum):
    """What is done next."""

    READ_OWNER = "read the owner, once that write can no longer be executed"
    DRAIN_OWNER = "put the drain label on the owner"
    RENEW_FENCE = "renew the hold on the shard's lease"
    AWAIT_FOLLOWERS = "wait until no write can be executed that was sent for a single child, or by this family before"
    AIM = "choose where the family goes: where its children have begun to go, or else the ring's answer"
    LOOK_AT_WATCHES = "look up the owner's children in the watches"
    PATCH_CHILDREN = "label the known children with the target, one after the other"
    AWAIT_WATCHES = "wait for the watches to show a patch that was begun since"
    LIST_CHILDREN = "read the children consistently"
    PATCH_OWNER = "label the owner with the target, and take the drain label off"


@dataclass(frozen=True, slots=True)
class Facts:
    """What can change under a family on its way.

    `may_take`: its shard is gone still and its lease held, or nobody has the owner.
    `target`: where it is going, chosen when the shards `chosen_among` were there to stay;
    `wanted`: where it would go now (`None`: nowhere), with those that are `staying`.
    `available`: those that have what they have.  `in_scope`: it is the ring's still.
    """

    may_take: bool
    target: str | None
    chosen_among: frozenset[str]
    wanted: str | None
    staying: frozenset[str]
    available: frozenset[str]
    in_scope: bool


@dataclass(frozen=True, slots=True)
class Need:
    """What has to hold for a step."""

    words: str
    met: Callable[[Facts], bool]


MAY_TAKE: Final = Need("nobody has the owner, or its shard is gone and the lease held", lambda facts: facts.may_take)
A_TARGET: Final = Need("there is somewhere to go", lambda facts: facts.wanted is not None)
# That a shard is silent, or no longer, makes no difference any more.
SAME_TARGET: Final = Need(
    "the target is still the right one, or the same shards are there to stay",
    lambda facts: facts.wanted == facts.target or facts.staying == facts.chosen_among,
)
IN_SCOPE: Final = Need("the owner's namespace has not left the ring", lambda facts: facts.in_scope)
TARGET_THERE: Final = Need("the target is available", lambda facts: facts.target in facts.available)


@dataclass(frozen=True, slots=True)
class Transition:
    """The step of a phase, once its `needs` are met; what comes `then`, and `otherwise` (`None`: again, later)."""

    step: Step
    then: Phase
    otherwise: Phase | None = None
    needs: tuple[Need, ...] = ()


#: What is done in each phase.
TABLE: Final[Mapping[Phase, Transition]] = MappingProxyType(
    {
        Phase.UNREAD: Transition(Step.READ_OWNER, Phase.HELD),
        Phase.HELD: Transition(Step.DRAIN_OWNER, Phase.DRAINED, needs=(MAY_TAKE,)),
        Phase.DRAINED: Transition(Step.RENEW_FENCE, Phase.LET_GO),
        Phase.LET_GO: Transition(Step.AWAIT_FOLLOWERS, Phase.ALONE),
        Phase.ALONE: Transition(Step.AIM, Phase.AIMED, needs=(A_TARGET, IN_SCOPE)),
        Phase.AIMED: Transition(Step.LOOK_AT_WATCHES, Phase.SHOWN, Phase.UNKNOWN),
        Phase.SHOWN: Transition(Step.PATCH_CHILDREN, Phase.SHOWN_MOVED, needs=(MAY_TAKE, SAME_TARGET, IN_SCOPE)),
        Phase.SHOWN_MOVED: Transition(Step.AWAIT_WATCHES, Phase.KNOWN, Phase.UNKNOWN, needs=(TARGET_THERE,)),
        Phase.UNKNOWN: Transition(Step.LIST_CHILDREN, Phase.KNOWN),
        Phase.KNOWN: Transition(Step.PATCH_CHILDREN, Phase.GATHERED, needs=(MAY_TAKE, SAME_TARGET, IN_SCOPE)),
        Phase.GATHERED: Transition(Step.PATCH_OWNER, Phase.MOVED, needs=(TARGET_THERE, MAY_TAKE, IN_SCOPE)),
    }
)


def begin(*, unread: bool, let_go: bool, gathered: bool = False) -> Phase:
    """Where a family begins, or goes on after a conflict; `gathered`: it met that when only its owner was left."""
    if gathered and not unread:
        return Phase.GATHERED
    return Phase.UNREAD if unread else _let_go_or(Phase.HELD, let_go=let_go)


def next_step(phase: Phase, facts: Callable[[], Facts]) -> Step | None:
    """What to do in a phase that is not the last; `None`: what it needs is not the case."""
    transition = TABLE[phase]
    if transition.needs:
        now = facts()
        if not all(need.met(now) for need in transition.needs):
            return None
    return transition.step


def after(phase: Phase, *, succeeded: bool, let_go: bool) -> Phase | None:
    """The next phase, once the step was taken; `None`: the family is tried again later."""
    following = TABLE[phase].then if succeeded else TABLE[phase].otherwise
    return following and _let_go_or(following, let_go=let_go)


def choose_target(kept: str | None, key: str, membership: Membership) -> str | None:
    """Where a family goes: where it has begun to go, or else the ring's answer."""
    if kept is not None and kept in membership.available:
        return kept
    desired = desire_main(key, membership)
    return desired.now(membership) if isinstance(desired, Target) else None


def _let_go_or(phase: Phase, *, let_go: bool) -> Phase:
    # Nobody had the owner, or it was let go before a conflict: its labels are what they were then.
    return Phase.LET_GO if phase is Phase.HELD and let_go else phase
