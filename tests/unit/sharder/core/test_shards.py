"""A lease's state depends on what we saw and on proven time, on nothing that the lease claims."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharder.core.shards import LeaseFacts, Proof, ShardState, State, classify, facts_of, runs_out_at
from shardsdk.protocol.labels import FENCED_ANNOTATION
from shardsdk.protocol.leases import DEFAULT_DURATION_SECONDS, Lease

#: Of every lease here whose test says nothing else.
RENEWED = "2030-01-01T00:00:00.000000Z"


def lease(name: str = "a", *, fenced: bool = False, **spec: Any) -> Lease:
    metadata = {
        "name": name,
        "namespace": "default",
        "annotations": {FENCED_ANNOTATION: RENEWED} if fenced else None,
    }
    spec = {"renewTime": RENEWED, **spec}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Lease)


def held(*, fenced: bool = False, seconds: Any = 10, observed_at: float = 100) -> LeaseFacts:
    return facts_of(lease(fenced=fenced, holderIdentity="a", leaseDurationSeconds=seconds), observed_at)


def dead(holder: str = "", seconds: int = 10) -> LeaseFacts:
    return facts_of(lease(holderIdentity=holder, leaseDurationSeconds=seconds), 100)


@pytest.mark.parametrize(
    ("facts", "now", "standing"),
    [
        (held(), 100, ShardState(State.READY, 110)),
        (held(), 109.9, ShardState(State.READY, 110)),
        (held(), 110, ShardState(State.EXPIRED, 120)),
        (held(), 119.9, ShardState(State.EXPIRED, 120)),
        (held(), 120, ShardState(State.UNCERTAIN, None)),
        (held(), 1e9, ShardState(State.UNCERTAIN, None)),
        (held(fenced=True), 109.9, ShardState(State.READY, 110)),
        (held(fenced=True), 110, ShardState(State.UNCERTAIN, None)),
        (dead(), 100, ShardState(State.DEAD, 170)),
        (dead(), 169.9, ShardState(State.DEAD, 170)),
        (dead(), 170, ShardState(State.ORPHANED, None)),
        (dead(holder="shardlease-controller", seconds=30), 100, ShardState(State.DEAD, 190)),
        (dead(holder="somebody"), 170, ShardState(State.ORPHANED, None)),
    ],
)
def test_the_states_of_the_contract(facts: LeaseFacts, now: float, standing: ShardState) -> None:
    assert classify(facts, Proof(since=0, until=now)) == standing


def test_time_before_the_proof_began_does_not_count() -> None:
    # Seen at 100, nothing proven until 500: the shard has its full duration from there.
    assert runs_out_at(held(), Proof(since=500, until=500)) == 510
    assert classify(held(), Proof(since=500, until=505)).state is State.READY
    assert classify(held(), Proof(since=500, until=510)).state is State.EXPIRED


def test_time_that_is_not_proven_yet_does_not_count() -> None:
    # However late it is: proof ended before the lease was seen.
    assert classify(held(), Proof(since=0, until=90)).state is State.READY
    assert classify(dead(), Proof(since=0, until=90)).state is State.DEAD


@pytest.mark.parametrize("seconds", [None, 0, -1, -(2**31)])
def test_a_held_lease_without_usable_duration_has_the_default(seconds: int | None) -> None:
    assert held(seconds=seconds).duration_seconds == DEFAULT_DURATION_SECONDS


@pytest.mark.parametrize("time", [None, "", "yesterday", "2999-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000000Z"])
def test_times_in_the_lease_do_not_matter(time: str | None) -> None:
    facts = facts_of(lease(holderIdentity="a", leaseDurationSeconds=10, renewTime=time, acquireTime=time), 100)
    assert classify(facts, Proof(0, 109)) == ShardState(State.READY, 110)
    assert classify(facts, Proof(0, 111)) == ShardState(State.EXPIRED, 120)


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": ""}, {"holderIdentity": None}, {"holderIdentity": "b"}])
def test_a_lease_not_held_by_its_shard_is_dead_whatever_else_it_lacks(spec: dict[str, Any]) -> None:
    assert classify(facts_of(lease(**spec), 100), Proof(0, 100)).state is State.DEAD


def test_a_lease_without_spec_decodes_and_is_dead() -> None:
    bare = msgspec.json.decode(b'{"metadata": {"name": "a"}}', type=Lease)
    assert classify(facts_of(bare, 0), Proof(0, 0)).state is State.DEAD


@pytest.mark.parametrize(
    ("spec", "released"),
    [
        ({"holderIdentity": "", "leaseDurationSeconds": 1}, True),
        ({"leaseDurationSeconds": 1}, True),
        ({"holderIdentity": "", "leaseDurationSeconds": 15}, False),
        ({"holderIdentity": ""}, False),
        ({"holderIdentity": "a", "leaseDurationSeconds": 1}, False),
    ],
)
def test_a_release_is_told_from_a_holder_wiped_out(spec: dict[str, Any], released: bool) -> None:
    assert facts_of(lease(**spec), 0).released is released


any_facts = st.builds(
    lambda holder, seconds, fenced, observed_at: facts_of(
        lease(fenced=fenced, holderIdentity=holder, leaseDurationSeconds=seconds), observed_at
    ),
    st.sampled_from([None, "", "a", "b", "shardlease-controller"]),
    st.none() | st.integers(-5, 10_000),
    st.booleans(),
    st.floats(0, 1e6),
)
ORDER = list(State)


@given(any_facts, st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_states_only_advance_with_time_and_name_the_moment_they_do(
    facts: LeaseFacts, since: float, span: float, more: float
) -> None:
    now = Proof(since, since + span)
    later = Proof(since, since + span + more)
    standing, then = classify(facts, now), classify(facts, later)
    assert ORDER.index(then.state) >= ORDER.index(standing.state)
    assert standing.state.available == facts.held_by_shard == then.state.available
    if standing.look_again_at is None:
        assert standing.state in (State.UNCERTAIN, State.ORPHANED)
    else:
        assert standing.look_again_at > now.until
        assert (then.state is standing.state) == (later.until < standing.look_again_at)
