"""What holds for every lease: nobody's is taken too early, and no moment is missed."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import assume, given
from hypothesis import strategies as st

from sharder.core.shards import LeaseFacts, Proof, State, classify
from sharder.core.takeover import Act, Limits, TakeoverFacts, decide_takeover, hold_seconds
from shardsdk.protocol.labels import SHARDER_HOLDER

LIMITS = Limits()
#: Whole seconds around the moment of the decision, so that boundaries are met.
NOW = 1000.0
moments = st.one_of(st.just(0.0), st.integers(800, 1200).map(float))


@st.composite
def leases(draw: st.DrawFn, holders: tuple[str, ...] = ("", "a", SHARDER_HOLDER, "somebody")) -> LeaseFacts:
    holder = draw(st.sampled_from(holders))
    duration = draw(st.sampled_from([1, 3, 15, 60]))
    return LeaseFacts(
        namespace="ns",
        name="a",
        holder=holder,
        duration_seconds=duration,
        fenced=draw(st.booleans()),
        observed_at=draw(st.integers(800, 1000).map(float)),
        released=holder == "" and duration == 1,
    )


ANY_LEASE = st.one_of(st.none(), leases())


@st.composite
def cases(draw: st.DrawFn, about: st.SearchStrategy[LeaseFacts | None] = ANY_LEASE) -> TakeoverFacts:
    lease = draw(about)
    ready = draw(st.booleans())
    proof = Proof(draw(st.sampled_from([0.0, 900.0, 990.0])), NOW)
    return TakeoverFacts(
        lease=lease,
        state=classify(lease, proof) if lease is not None else None,
        presumed_until=draw(moments),
        spared_until=draw(st.one_of(moments, st.just(inf))),
        hold_until=draw(st.one_of(st.none(), moments)),
        hold_seconds=draw(st.sampled_from([15.0, 30.0, 120.0])),
        ready_elsewhere=ready,
        available_elsewhere=ready or draw(st.booleans()),
        lives_elsewhere=draw(st.booleans()),
        objects_left=draw(st.sampled_from([None, False, True])),
        last_move_at=draw(st.one_of(st.just(0.0), st.integers(900, 1000).map(float))),
        progress_at=draw(st.one_of(st.just(0.0), st.integers(900, 1000).map(float))),
        barred_until=draw(moments),
    )


@given(cases())
def test_each_decision_suits_the_lease_that_it_is_about(facts: TakeoverFacts) -> None:
    holder = facts.lease.holder if facts.lease is not None else None
    match decide_takeover(facts, NOW, LIMITS).act:
        case Act.CREATE:
            assert holder is None
        case Act.ACQUIRE | Act.TRY:
            assert holder is not None
            assert holder != SHARDER_HOLDER
        case Act.RENEW | Act.GIVE_BACK:
            assert holder == SHARDER_HOLDER
        case Act.DELETE:
            assert holder in ("", "somebody")
        case Act.WAIT:
            pass


@given(cases())
def test_nothing_is_taken_that_may_be_held_nor_without_a_shard_to_move_it_to(facts: TakeoverFacts) -> None:
    if decide_takeover(facts, NOW, LIMITS).act not in (Act.ACQUIRE, Act.CREATE):
        return
    assert facts.ready_elsewhere
    if facts.lease is not None and facts.lease.holder == facts.lease.name:
        assert facts.state is not None
        assert facts.state.state is State.UNCERTAIN
        assert facts.spared_until <= NOW
    else:
        assert facts.presumed_until <= NOW
        assert facts.barred_until <= NOW
        assert facts.work_left


@given(cases(leases(("a",))))
def test_it_is_asked_whether_a_lease_may_be_written_only_after_that_was_refused(facts: TakeoverFacts) -> None:
    """Nothing is acquired before; and it is asked whenever all else speaks for acquiring, so that it ends."""
    act = decide_takeover(facts, NOW, LIMITS).act
    once_refused = decide_takeover(replace(facts, spared_until=inf), NOW, LIMITS).act
    in_the_end = decide_takeover(replace(facts, spared_until=NOW), NOW, LIMITS).act
    assert act is not Act.TRY or facts.spared_until == inf
    assert act is not Act.ACQUIRE or once_refused is Act.TRY
    assert (once_refused is Act.TRY) == (in_the_end is Act.ACQUIRE)


@given(cases())
def test_only_what_is_known_to_be_empty_is_deleted_or_given_back_as_done(facts: TakeoverFacts) -> None:
    step = decide_takeover(facts, NOW, LIMITS)
    if step.act is Act.DELETE:
        assert facts.work_left is False
        assert facts.presumed_until <= NOW
    if step.act is Act.GIVE_BACK and facts.available_elsewhere and facts.work_left is not False:
        assert facts.hold_until is not None
        assert facts.hold_until > NOW
        assert facts.progress_at + LIMITS.stall_seconds <= NOW


@given(cases(), st.floats(0.0, 400.0))
def test_no_moment_is_missed(facts: TakeoverFacts, seconds: float) -> None:
    """Until the moment that a wait names (for ever, if it names none) time alone changes nothing."""
    step = decide_takeover(facts, NOW, LIMITS)
    assume(step.act is Act.WAIT)
    assert step.look_again_at is None or step.look_again_at > NOW
    later = NOW + seconds
    assume(step.look_again_at is None or later < step.look_again_at)
    assert decide_takeover(facts, later, LIMITS).act is Act.WAIT


@given(cases(leases((SHARDER_HOLDER,))))
def test_a_lease_in_the_sharders_name_is_always_on_its_way_back(facts: TakeoverFacts) -> None:
    """Whatever the facts: renewed, given back, or looked at again; unless it waits to hear what is left on it."""
    step = decide_takeover(facts, NOW, LIMITS)
    if step.act is Act.WAIT and step.look_again_at is None:
        assert facts.work_left is None
    stuck = replace(
        facts,
        objects_left=True,
        lives_elsewhere=False,
        available_elsewhere=True,
        hold_until=NOW + 1e6,
        hold_seconds=1e6,
    )
    assert decide_takeover(stuck, facts.progress_at + LIMITS.stall_seconds, LIMITS).act is Act.GIVE_BACK


@given(st.one_of(st.none(), leases()))
def test_a_hold_is_never_shorter_than_what_others_wait_for(facts: LeaseFacts | None) -> None:
    seconds = hold_seconds(facts, LIMITS)
    assert seconds >= 1
    if facts is None or facts.holder in ("", "somebody"):
        assert seconds >= LIMITS.min_hold_seconds
    if facts is not None and facts.holder == facts.name:
        assert seconds == 2 * facts.duration_seconds
