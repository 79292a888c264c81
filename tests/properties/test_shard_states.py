"""States of leases that are judged only where something can have changed are those of judging all of them each time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sharder.cache.ringobject import RingObject
from sharder.cache.rings import LeaseKey, RingSnapshot
from sharder.core.membership import Membership
from sharder.core.observed import ObservedLease
from sharder.core.shards import LeaseFacts, ShardState, State, classify
from sharder.takeover.fences import CommitProof
from sharder.takeover.states import ShardStates
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.testing.virtual import VirtualClock

RETRY_SECONDS = 2.0
SHARDS = ("one", "two", "three")


class World:
    """A ring whose leases change, under a leader whose own renewals come or fail to."""

    def __init__(self) -> None:
        self.clock = VirtualClock(100.0)
        self.proof = CommitProof(self.clock, RETRY_SECONDS)
        self.leases: dict[LeaseKey, ObservedLease] = {}
        self.standings = ShardStates(self.proof, self.clock, self.judge)
        self.judged = 0

    def judge(self, seen: ObservedLease) -> tuple[LeaseFacts, ShardState]:
        self.judged += 1
        facts = seen.facts
        return facts, classify(facts, self.proof.of(facts.duration_seconds))

    def write(self, shard: str, holder: str, duration: int) -> None:
        spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=duration)
        lease = Lease(ObjectMeta(name=shard, namespace="shards"), spec)
        self.leases["shards", shard] = ObservedLease(lease, self.clock.monotonic())
        self.standings.look_at(self.entry, ("shards", shard))

    def delete(self, shard: str) -> None:
        if self.leases.pop(("shards", shard), None) is not None:
            self.standings.look_at(self.entry, ("shards", shard))

    @property
    def entry(self) -> RingSnapshot:
        ring = RingObject(ObjectMeta(name="ring", uid="uid"))
        return RingSnapshot(ring, None, None, (), (), dict(self.leases), {}, Membership())

    def renew_own(self, seconds: float) -> None:
        now = self.clock.monotonic()
        self.proof.renewed(max(now - seconds, 0.0), now)

    def check(self) -> None:
        self.standings.look(self.entry)
        fresh = {key: self.judge(seen)[1].state for key, seen in self.entry.leases.items()}
        assert self.standings.states == fresh
        assert self.standings.ready == frozenset(name for (_, name), state in fresh.items() if state is State.READY)


shards = st.sampled_from(SHARDS)
steps = st.one_of(
    st.tuples(st.just("pass"), st.floats(0.01, 40.0)),
    st.tuples(st.just("pass"), st.sampled_from((0.5, 1.0, 2.0, 3.0, 15.0))),
    st.tuples(st.just("renew_own"), st.floats(0.0, 2.0)),
    st.tuples(st.just("write"), shards, st.just(""), st.sampled_from((1, 3, 6, 15, 60))),
    st.tuples(st.just("write"), shards, st.sampled_from((*SHARDS, SHARDER_HOLDER)), st.sampled_from((3, 6, 15, 60))),
    st.tuples(st.just("delete"), shards),
)


@given(st.lists(steps, max_size=60))
def test_states_are_those_of_judging_every_lease_each_time(story: list[tuple[Any, ...]]) -> None:
    world = World()
    for what, *arguments in story:
        match what:
            case "pass":
                world.clock.jump(arguments[0])
            case _:
                getattr(world, what)(*arguments)
        world.check()


def test_a_renewal_among_many_leases_is_one_judgement() -> None:
    world, many = World(), [f"shard-{number}" for number in range(1000)]
    world.renew_own(0.1)
    for shard in many:
        world.write(shard, shard, 15)
    world.standings.look(world.entry)
    world.judged = 0
    for _ in range(5):
        world.clock.jump(1.0)
        world.renew_own(0.1)
        for shard in many[:100]:
            world.write(shard, shard, 15)
            world.standings.look(world.entry)
    assert world.judged == 500
