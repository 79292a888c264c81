"""Time counts against a lease only where its shard could have renewed it, and where it could it counts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from sharder.core.proven_time import (
    MAX_GAPS,
    SLOW_AFTER,
    Reading,
    Renewals,
    are_slow,
    note_commit,
    note_renewal,
    proof_for,
    surely_before,
    tolerated_gap,
)
from sharder.core.shards import LeaseFacts, Proof, State, classify
from sharder.takeover.fences import CommitProof
from shardsdk.testing.virtual import VirtualClock
from tests.simulation.machines import MachineClock

RETRY = 2.0
DURATIONS = (1, 2, 6, 7, 9, 10, 15, 60)

#: Pauses between two renewals and the time that each takes, both in seconds.
histories = st.lists(st.tuples(st.floats(0.1, 12.0), st.floats(0.0, 4.0)), min_size=1, max_size=MAX_GAPS)


def play(history: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """When each renewal was sent and answered."""
    moments, now = [], 0.0
    for pause, takes in history:
        sent = now + pause
        now = sent + takes
        moments.append((sent, now))
    return moments


def known_after(moments: list[tuple[float, float]], retry: float = RETRY) -> Renewals:
    known = Renewals()
    for sent, answered in moments:
        known = note_renewal(known, sent, answered, retry)
    return known


@given(histories, st.sampled_from(DURATIONS), st.floats(0.0, 20.0))
def test_time_counts_from_the_end_of_the_last_gap_that_is_too_long(
    history: list[tuple[float, float]], duration: int, later: float
) -> None:
    moments, tolerated = play(history), tolerated_gap(duration, RETRY)
    since = moments[0][1]
    for (sent, _), (_, answered) in pairwise(moments):
        if answered - sent > tolerated:
            since = answered
    last_sent, now = moments[-1][0], moments[-1][1] + later
    expected = Proof(since, now if now - last_sent <= tolerated else last_sent)
    assert proof_for(known_after(moments), duration, RETRY, now) == expected


@given(st.lists(st.tuples(st.floats(0.1, 12.0), st.floats(0.0, 4.0)), min_size=1, max_size=300))
def test_what_is_remembered_is_bounded_and_longer_leases_have_no_less_time_counted(
    history: list[tuple[float, float]],
) -> None:
    moments = play(history)
    known = known_after(moments)
    assert len(known.gaps) <= MAX_GAPS
    assert len(known.recent) <= SLOW_AFTER
    proofs = [proof_for(known, duration, RETRY, moments[-1][1]) for duration in DURATIONS]
    for short, long in pairwise(proofs):
        assert short.since >= long.since
        assert short.until <= long.until


def test_ever_shorter_gaps_are_merged_to_let_less_time_count() -> None:
    moments = [(0.0, 0.0)]
    for number in range(2 * MAX_GAPS):
        sent = moments[-1][0] + 4.9 - number / 1000
        moments.append((sent, sent))
    known = known_after(moments)
    assert len(known.gaps) == MAX_GAPS
    last_too_long = max(answered for (sent, _), (_, answered) in pairwise(moments) if answered - sent > 4.85)
    assert proof_for(known, 9.7, RETRY, moments[-1][1]).since >= last_too_long


def lease(duration: int, observed_at: float) -> LeaseFacts:
    return LeaseFacts("ns", "a", "a", duration, fenced=True, observed_at=observed_at, released=False)


@example(duration=6, away=4.5, phase=0.05, jitter=0.0, since_renewal=0.0)
@given(
    duration=st.integers(6, 40),
    away=st.floats(0.0, 60.0),
    phase=st.floats(0.0, 1.0),
    jitter=st.floats(0.0, 1.0),
    since_renewal=st.floats(0.0, 1.0),
)
def test_an_outage_of_any_length_takes_no_lease_from_a_shard_that_comes_back_in_time(
    duration: int, away: float, phase: float, jitter: float, since_renewal: float
) -> None:
    """Leases of three retry periods and more, renewed as by default: every 2/15 of their duration and its jitter.

    A shard that lives through it renews within one such pause of its end; one that has lost its lease by its own
    clock (at 2/3 of it) comes back within a duration.
    """
    pause = RETRY * (1 + 0.2 * jitter)
    began = 100.0 + phase * pause
    renewals, sent = [], 0.0
    while sent < began:
        renewals.append((sent, sent + 0.02))
        sent += pause
    # The first renewal that is answered again: one that hung, or the next try after the end.
    known = known_after(renewals)
    answered_again = max(began + away, sent) + 0.02
    after = note_renewal(known, answered_again - 0.01, answered_again, RETRY)
    renews_every = duration * 2 / 15 * 1.2
    last_seen = began - since_renewal * renews_every
    survives = began + away - last_seen < duration * 2 / 3
    back = began + away + renews_every if survives else began + away + 0.95 * duration
    for step in range(101):
        now = began + (back - began) * step / 100
        proof = proof_for(known if now < answered_again else after, duration, RETRY, now)
        if now >= answered_again:
            # Renewals go on afterwards, in time.
            proof = Proof(proof.since, now)
        assert classify(lease(duration, last_seen), proof).state is State.READY, f"{now - began:.2f} s after its begin"


@given(st.sampled_from(DURATIONS), st.lists(st.floats(0.0, 0.29), min_size=40, max_size=40), st.floats(0.0, 1.0))
def test_a_crashed_shards_lease_runs_out_while_the_leader_renews_in_time(
    duration: int, answers: list[float], jitter: float
) -> None:
    moments = [(number * RETRY * (1 + 0.2 * jitter), 0.0) for number in range(len(answers))]
    known = known_after([(sent, sent + takes * RETRY) for (sent, _), takes in zip(moments, answers, strict=True)])
    now = moments[-1][0]
    if now - answers[0] * RETRY > duration:
        assert classify(lease(duration, answers[0] * RETRY), proof_for(known, duration, RETRY, now)).state is not (
            State.READY
        )
    assert not are_slow(known, duration, RETRY)


def test_renewals_that_come_too_slowly_time_after_time_are_no_outage() -> None:
    outage = known_after([(0.0, 0.1), (2.0, 2.1), (22.0, 22.1), (24.0, 24.1)])
    assert not are_slow(outage, 15, RETRY)
    slow = known_after([(3.0 * number, 3.0 * number + 2.9) for number in range(5)])
    assert are_slow(slow, 15, RETRY)
    assert proof_for(slow, 15, RETRY, 15.0).since == 14.9


#: Of one renewal: the pause before it and the time it takes, and for how long the machine stands still during either.
stopping = st.tuples(
    st.floats(0.1, 4.0), st.floats(0.0, 2.0), st.sampled_from((0.0, 0.0, 3.0, 16.0)), st.sampled_from((0.0, 0.0, 16.0))
)


@example([(0.1, 0.0, 0.0, 0.0), (1.5, 0.1, 16.0, 0.0)], 0.0)
@example([(0.1, 0.0, 0.0, 0.0), (1.5, 0.1, 0.0, 16.0), (1.5, 0.1, 0.0, 0.0)], 0.0)
@given(st.lists(stopping, min_size=1, max_size=20), st.floats(0.0, 4.0))
def test_time_that_a_stopped_machine_has_missed_is_part_of_the_gap_that_it_was_in(
    history: list[tuple[float, float, float, float]], later: float
) -> None:
    """Wherever it stood still: what is noticed with an answer may have been missed before it was sent, or after."""
    world = VirtualClock()
    clock = MachineClock(world)
    proof, answers = CommitProof(clock, RETRY), list[tuple[float, float, float]]()

    def stand_still(seconds: float) -> None:
        world.jump(seconds)
        clock.stood_still(seconds)

    for pause, takes, while_pausing, while_asking in history:
        world.jump(pause)
        stand_still(while_pausing)
        truly_sent, sent = world.monotonic(), clock.monotonic()
        world.jump(takes)
        stand_still(while_asking)
        clock.lapses.note(while_pausing + while_asking)
        proof.renewed(sent - (while_pausing + while_asking), clock.monotonic())
        answers.append((truly_sent, world.monotonic(), clock.monotonic()))
    world.jump(later)
    for duration in DURATIONS:
        tolerated, since = tolerated_gap(duration, RETRY) + 1e-6, answers[0][2]
        for (truly_sent, _, _), (_, truly_answered, answered) in pairwise(answers):
            if truly_answered - truly_sent > tolerated:
                since = answered
        found = proof.of(duration)
        assert found.since >= since
        if world.monotonic() - answers[-1][0] > tolerated:
            assert found.until < clock.monotonic()


def test_one_renewal_after_a_stop_was_noticed_time_counts_again_from_there() -> None:
    world = VirtualClock()
    clock = MachineClock(world)
    proof = CommitProof(clock, RETRY)
    for _ in range(3):
        world.jump(2.0)
        proof.renewed(clock.monotonic(), clock.monotonic())
    assert proof.of(6.0) == Proof(2.0, 6.0)
    clock.lapses.note(16.0)
    assert proof.of(6.0).until < clock.monotonic(), "nothing shows that anybody could renew meanwhile"
    assert proof.basis() is None
    world.jump(0.1)
    proof.renewed(clock.monotonic(), clock.monotonic())
    world.jump(2.0)
    assert proof.of(6.0) == Proof(clock.monotonic() - 2.0, clock.monotonic())
    assert proof.proven_until() == clock.monotonic()


#: Pauses between commits, and whether each is a shard's renewal: other commits raise versions as well.
commits = st.lists(st.tuples(st.floats(0.05, 9.0), st.booleans()), min_size=1, max_size=60)
#: Pauses between readings, the time to the moment at which each is executed, and from there to its answer.
readings = st.lists(st.tuples(st.floats(0.1, 4.0), st.floats(0.0, 3.0), st.floats(0.0, 3.0)), min_size=1, max_size=60)
#: How late the watch shows each commit; it keeps their order.
lags = st.lists(st.floats(0.0, 6.0), min_size=60, max_size=60)


@given(commits, readings, lags, st.floats(0.0, 10.0))
def test_what_a_watch_shows_of_others_renewals_proves_no_time_in_which_nobody_could_renew(
    made: list[tuple[float, bool]], asked: list[tuple[float, float, float]], late: list[float], later: float
) -> None:
    """Whatever the delays of requests and of the watch, and however few renewals there are among the commits."""
    times, now = [], 0.0
    for pause, _ in made:
        now += pause
        times.append(now)
    happens: list[tuple[float, int, Reading | int]] = []
    sent = 0.0
    for pause, to_server, back in asked:
        sent += pause
        version = sum(1 for each in times if each <= sent + to_server)
        happens.append((sent + to_server + back, 0, Reading(sent, version)))
    shown = 0.0
    for index, (_, renewal) in enumerate(made):
        shown = max(shown, times[index] + late[index])
        if renewal:
            happens.append((shown, 1, index + 1))
    known, answered = Renewals(), []
    for moment, _, what in sorted(happens, key=lambda each: each[:2]):
        if isinstance(what, Reading):
            answered.append(what)
        elif (before := surely_before(answered, what)) is not None:
            known = note_commit(known, before.sent_at, moment, RETRY)
    now = max(moment for moment, _, _ in happens) + later
    renewals = [float("-inf"), *(at for at, (_, renewal) in zip(times, made, strict=True) if renewal), float("inf")]
    for duration in DURATIONS:
        proof = proof_for(known, duration, RETRY, now)
        for one, next_one in pairwise(renewals):
            counted = min(next_one, proof.until) - max(one, proof.since)
            assert counted <= tolerated_gap(duration, RETRY) + 1e-9


def test_a_standby_that_sees_renewals_in_time_has_all_of_it_counted() -> None:
    known, version, answered = Renewals(), 0, []
    for second in range(60):
        answered.append(Reading(float(second), version))
        if second % 2:
            version += 1
            before = surely_before(answered, version)
            assert before is not None
            known = note_commit(known, before.sent_at, second + 0.5, RETRY)
    assert proof_for(known, 15, RETRY, 60.0) == Proof(1.5, 60.0)
    assert proof_for(known, 6, RETRY, 60.0) == Proof(1.5, 60.0)
    assert known.recent == (), "these are no renewals of a leader's, which could be slow"
