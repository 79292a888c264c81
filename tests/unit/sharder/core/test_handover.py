"""The order in which families change hands: what comes before what on every way through the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sharder.core.handover import (
    A_TARGET,
    IN_SCOPE,
    MAY_TAKE,
    SAME_TARGET,
    TABLE,
    TARGET_THERE,
    Facts,
    Phase,
    Step,
    after,
    begin,
    choose_target,
    next_step,
)
from sharder.core.hashring import HashRing
from sharder.core.membership import Membership

BOTH = frozenset({"one", "two"})
#: Nothing has changed since the target was chosen.
AS_BEFORE = Facts(
    may_take=True, target="one", chosen_among=BOTH, wanted="one", staying=BOTH, available=BOTH, in_scope=True
)
READS = (Step.AWAIT_WATCHES, Step.LIST_CHILDREN)


def ways(*, unread: bool, let_go: bool) -> list[list[tuple[Phase, Step]]]:
    """Every way to the last phase."""
    return list(_ways(begin(unread=unread, let_go=let_go), let_go, []))


def _ways(phase: Phase, let_go: bool, so_far: list[tuple[Phase, Step]]) -> Iterator[list[tuple[Phase, Step]]]:
    if phase is Phase.MOVED:
        yield so_far
        return
    step = TABLE[phase].step
    assert (phase, step) not in so_far, "round in circles"
    let_go = let_go or step is Step.RENEW_FENCE
    for succeeded in (True, False):
        following = after(phase, succeeded=succeeded, let_go=let_go)
        if following is not None:
            yield from _ways(following, let_go, [*so_far, (phase, step)])


def steps(way: list[tuple[Phase, Step]]) -> list[Step]:
    return [step for _, step in way]


EVERY_WAY = [way for unread in (False, True) for let_go in (False, True) for way in ways(unread=unread, let_go=let_go)]
OF_A_SHARD = [way for unread in (False, True) for way in ways(unread=unread, let_go=False)]


def test_there_is_a_step_for_every_phase_but_the_last() -> None:
    assert [*TABLE, Phase.MOVED] == list(Phase)
    assert {transition.step for transition in TABLE.values()} == set(Step)
    assert {phase for way in EVERY_WAY for phase, _ in way} == set(TABLE), "a phase that is never reached"


def test_what_a_shard_had_is_drained_first_and_then_the_fence_is_renewed() -> None:
    for way in OF_A_SHARD:
        taken = [step for step in steps(way) if step is not Step.READ_OWNER]
        assert taken[:2] == [Step.DRAIN_OWNER, Step.RENEW_FENCE]


def test_what_nobody_has_is_neither_drained_nor_fenced() -> None:
    for way in ways(unread=False, let_go=True):
        assert not {Step.DRAIN_OWNER, Step.RENEW_FENCE} & set(steps(way))


def test_the_owner_goes_last_and_after_all_its_children() -> None:
    for way in EVERY_WAY:
        assert way[-2:] == [(Phase.KNOWN, Step.PATCH_CHILDREN), (Phase.GATHERED, Step.PATCH_OWNER)]


def test_that_all_children_are_known_is_proven_after_the_owner_was_let_go() -> None:
    for way in EVERY_WAY:
        taken = steps(way)
        proof = taken[taken.index(Step.PATCH_OWNER) - 2]
        assert proof in READS
        if Step.RENEW_FENCE in taken:
            assert taken.index(proof) > taken.index(Step.RENEW_FENCE)


def test_where_children_are_is_asked_once_nothing_else_moves_them() -> None:
    for way in EVERY_WAY:
        taken = steps(way)
        asked = (taken.index(step) for step in (Step.LOOK_AT_WATCHES, *READS) if step in taken)
        assert taken.index(Step.AWAIT_FOLLOWERS) < min(asked)


def test_what_watches_show_is_no_proof_by_itself() -> None:
    assert after(Phase.SHOWN, succeeded=True, let_go=True) is Phase.SHOWN_MOVED
    assert after(Phase.SHOWN_MOVED, succeeded=False, let_go=True) is Phase.UNKNOWN
    assert after(Phase.AIMED, succeeded=False, let_go=True) is Phase.UNKNOWN


@pytest.mark.parametrize("step", [Step.DRAIN_OWNER, Step.PATCH_CHILDREN, Step.PATCH_OWNER])
def test_whatever_is_written_needs_a_shard_that_is_gone_and_a_lease_that_is_held(step: Step) -> None:
    for phase, transition in TABLE.items():
        if transition.step is step:
            assert next_step(phase, lambda: AS_BEFORE) is step
            assert next_step(phase, lambda: replace(AS_BEFORE, may_take=False)) is None


@pytest.mark.parametrize("phase", [Phase.SHOWN, Phase.KNOWN])
def test_children_go_where_the_family_was_to_go_or_start_over(phase: Phase) -> None:
    silent = replace(AS_BEFORE, wanted="two")
    assert next_step(phase, lambda: silent) is Step.PATCH_CHILDREN, "the same shards: one of them is silent"
    joined = replace(silent, staying=BOTH | {"three"})
    assert next_step(phase, lambda: joined) is None
    assert next_step(phase, lambda: replace(joined, wanted="one")) is Step.PATCH_CHILDREN


@pytest.mark.parametrize("phase", [Phase.SHOWN_MOVED, Phase.GATHERED])
def test_nothing_follows_children_to_a_shard_that_is_gone(phase: Phase) -> None:
    assert next_step(phase, lambda: replace(AS_BEFORE, available=frozenset({"two"}))) is None


def test_a_family_with_nowhere_to_go_waits() -> None:
    assert next_step(Phase.ALONE, lambda: replace(AS_BEFORE, wanted=None)) is None
    assert next_step(Phase.ALONE, lambda: AS_BEFORE) is Step.AIM


@pytest.mark.parametrize("phase", [Phase.ALONE, Phase.SHOWN, Phase.KNOWN, Phase.GATHERED])
def test_nothing_is_given_to_anybody_that_has_left_the_ring(phase: Phase) -> None:
    assert next_step(phase, lambda: replace(AS_BEFORE, in_scope=False)) is None


def test_every_need_is_of_some_step() -> None:
    needs = {need.words for transition in TABLE.values() for need in transition.needs}
    assert needs == {need.words for need in (MAY_TAKE, A_TARGET, SAME_TARGET, IN_SCOPE, TARGET_THERE)}


@pytest.mark.parametrize("phase", [Phase.UNREAD, Phase.HELD, Phase.DRAINED, Phase.UNKNOWN, Phase.KNOWN])
def test_what_does_not_succeed_is_tried_again_later(phase: Phase) -> None:
    assert after(phase, succeeded=False, let_go=False) is None


@pytest.mark.parametrize(
    ("unread", "let_go", "phase"),
    [
        (True, False, Phase.UNREAD),
        (True, True, Phase.UNREAD),
        (False, False, Phase.HELD),
        (False, True, Phase.LET_GO),
    ],
)
def test_where_a_family_begins(unread: bool, let_go: bool, phase: Phase) -> None:
    assert begin(unread=unread, let_go=let_go) is phase


def test_after_a_conflict_a_family_goes_on_with_its_owner_if_that_alone_was_left() -> None:
    assert begin(unread=False, let_go=True, gathered=True) is Phase.GATHERED
    assert begin(unread=True, let_go=True, gathered=True) is Phase.UNREAD


def test_after_its_owner_was_read_a_family_begins_as_any_other() -> None:
    assert after(Phase.UNREAD, succeeded=True, let_go=False) is Phase.HELD
    assert after(Phase.UNREAD, succeeded=True, let_go=True) is Phase.LET_GO


def test_a_family_goes_on_to_where_it_began_to_go_while_that_is_available() -> None:
    membership = Membership(available=BOTH, ready=BOTH, ring=HashRing(sorted(BOTH)))
    ring = membership.target("key")
    assert ring is not None
    [other] = BOTH - {ring}
    assert choose_target(None, "key", membership) == ring
    assert choose_target(other, "key", membership) == other
    assert choose_target("gone", "key", membership) == ring
    assert choose_target(None, "key", Membership()) is None
    silent = replace(membership, silent=frozenset({ring}), lively=HashRing([other]))
    assert choose_target(None, "key", silent) == other
