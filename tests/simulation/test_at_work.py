"""When two processes are at work on one object, and whom that is forgiven: those who cannot know yet, and no others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest

from shardsdk.kube.lapses import MEMORY_SECONDS, NOTHING, ServerClock
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LEASE_RING_LABEL, SHARDER_HOLDER
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.processes import Process
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.simulation.machines import LEAST_SECONDS, Comparison, MachineClock
from tests.simulation.network import Link
from tests.simulation.schedule import draw_plan
from tests.simulation.simapi import SimApi
from tests.simulation.storage import Author
from tests.simulation.vocabulary import FAMILY, WORKS, Doing
from tests.simulation.world import World

OLD, NEW = "fam-0_1", "fam-1_1"
WORK: Final = Key("blue", "work")


class FakeShard:
    """A process that the world knows, and that does nothing by itself."""

    ring = FAMILY
    fenced = True
    hold_ends = False

    def __init__(self, identity: str, clock: VirtualClock) -> None:
        self.identity = identity
        self.name = identity.partition("_")[0]
        self.process = Process(identity)
        self.clock = MachineClock(clock)
        self.main = SimpleNamespace(done=lambda: False)

    @property
    def running(self) -> bool:
        return self.process.state.name == "RUNNING"


def make_world(clock: VirtualClock, *, ranges: bool = False) -> tuple[World, FakeShard, FakeShard]:
    """One with two shards and a work, which is the second one's by its label."""
    world = World(replace(draw_plan(1), ranges=ranges, spread=False), clock)
    meta = {"namespace": WORK.namespace, "name": WORK.name, "labels": {FAMILY.shard: "fam-1"}}
    kind = {"apiVersion": WORKS.api_version, "kind": WORKS.kind}
    world.storage.create(WORKS, {**kind, "metadata": meta, "spec": {"keys": []}}, Author("setup"))
    old, new = FakeShard(OLD, clock), FakeShard(NEW, clock)
    shards: Any = (old, new)
    world.shards.extend(shards)
    return world, old, new


def doing_of(world: World, shard: FakeShard, *, plain: bool = False) -> Doing:
    world.stats.reconciles += 1
    uid = world.storage.demand(WORKS, WORK).uid
    return Doing(shard.name, shard.identity, WORKS, uid, world.stats.reconciles, shard.fenced, plain)


def hold_lease(world: World, shard: FakeShard) -> None:
    meta = {"namespace": world.namespace_of_shard(shard.name), "name": shard.name}
    labels = {LEASE_RING_LABEL: FAMILY.ring}
    spec = {"holderIdentity": shard.name, "leaseDurationSeconds": 15}
    body = {"kind": "Lease", "metadata": {**meta, "labels": labels}, "spec": spec}
    world.storage.create(LEASES, body, Author(shard.identity))


async def ask(comparison: Comparison, clock: VirtualClock) -> None:
    """A request, and its answer a moment later."""
    execute, compare = comparison.watch(lambda: None)
    await clock.sleep(0.01)
    execute()
    compare()


async def stand_still(world: World, shard: FakeShard, seconds: float = 2 * LEAST_SECONDS) -> None:
    """Have the machine of a shard stand still, and go on a second later."""
    fake: Any = shard
    world.machines.stop(fake, seconds)
    await world.clock.sleep(seconds + 1.0)


def beside(world: World) -> bool:
    return "one at work" in [each.rule for each in world.checkers.violations]


@pytest.mark.parametrize("ranges", [False, True], ids=["by labels", "by ranges"])
@in_virtual_time
async def test_a_reconcile_that_begins_while_another_processes_runs_is_one_too_many(
    clock: VirtualClock, ranges: bool
) -> None:
    world, old, new = make_world(clock, ranges=ranges)
    world.checkers.began(doing_of(world, old))
    await clock.sleep(1.0)
    world.checkers.began(doing_of(world, new))
    assert beside(world)


@in_virtual_time
async def test_one_that_has_ended_and_another_one_of_the_same_process_are_none(clock: VirtualClock) -> None:
    world, old, new = make_world(clock)
    ended = doing_of(world, old)
    world.checkers.began(ended)
    world.checkers.ended(ended)
    world.checkers.began(doing_of(world, new))
    world.checkers.began(doing_of(world, new))
    assert not beside(world)


@pytest.mark.parametrize(("holds", "wrong"), [(True, True), (False, False)])
@in_virtual_time
async def test_one_whose_process_stands_still_counts_only_while_its_lease_would_let_it_go_on(
    clock: VirtualClock, holds: bool, wrong: bool
) -> None:
    world, old, new = make_world(clock)
    if holds:
        hold_lease(world, old)
    world.checkers.began(doing_of(world, old))
    old.process.pause()
    await clock.sleep(1.0)
    world.checkers.began(doing_of(world, new))
    assert beside(world) is wrong


@pytest.mark.parametrize("ranges", [False, True], ids=["by labels", "by ranges"])
@pytest.mark.parametrize(("later", "wrong"), [(0.0, False), (0.1, True)], ids=["as it is resumed", "afterwards"])
@in_virtual_time
async def test_one_that_goes_on_after_a_pause_beside_another_is_one_too_many(
    clock: VirtualClock, ranges: bool, later: float, wrong: bool
) -> None:
    world, old, new = make_world(clock, ranges=ranges)
    first = doing_of(world, old)
    world.checkers.began(first)
    old.process.pause()
    await clock.sleep(1.0)
    world.checkers.began(doing_of(world, new))
    await clock.sleep(1.0)
    world.machines.resume(old)
    await clock.sleep(later)
    world.checkers.at_work.stepped(first)
    assert beside(world) is wrong


@pytest.mark.parametrize(("later", "wrong"), [(0.0, False), (0.05, True)], ids=["as it notices", "a moment later"])
@in_virtual_time
async def test_a_stopped_machine_excuses_what_begins_until_it_is_noticed(
    clock: VirtualClock, later: float, wrong: bool
) -> None:
    world, old, new = make_world(clock)
    fake: Any = old
    world.machines.stop(fake, LEAST_SECONDS)
    await clock.sleep(LEAST_SECONDS + 1.0)
    world.checkers.began(doing_of(world, new))
    world.checkers.began(doing_of(world, old))
    assert not beside(world)
    old.clock.lapses.note(LEAST_SECONDS)
    await clock.sleep(later)
    world.checkers.began(doing_of(world, old))
    assert beside(world) is wrong


@pytest.mark.parametrize(
    ("sent", "wrong"),
    [(-0.5, True), (0.5, False), (1.5, True)],
    ids=["before its machine stood still", "before it noticed", "after it noticed"],
)
@in_virtual_time
async def test_a_stopped_machine_excuses_what_was_sent_before_it_was_noticed_whenever_it_arrives(
    clock: VirtualClock, sent: float, wrong: bool
) -> None:
    world, old, new = make_world(clock)
    first = doing_of(world, old)
    world.checkers.began(first)
    fake: Any = old
    world.machines.stop(fake, LEAST_SECONDS)
    await clock.sleep(LEAST_SECONDS)
    went_on_at = world.now
    world.checkers.began(doing_of(world, new))
    await clock.sleep(1.0)
    old.clock.lapses.note(LEAST_SECONDS)
    await clock.sleep(1.0)
    before = world.storage.demand(WORKS, WORK)
    author = Author(OLD, first, went_on_at + sent - (LEAST_SECONDS if sent < 0 else 0.0))
    world.storage.replace(WORKS, before, {**before.doc, "spec": {"keys": ["a"]}}, author)
    rules = {each.rule for each in world.checkers.violations}
    assert ({"two owners", "writes what is its own"} <= rules) is wrong


@pytest.mark.parametrize(("plain", "ends", "wrong"), [(True, True, False), (True, False, True), (False, True, True)])
@in_virtual_time
async def test_a_plain_function_that_was_told_has_what_is_left_of_its_hold(
    clock: VirtualClock, plain: bool, ends: bool, wrong: bool
) -> None:
    world, old, new = make_world(clock)
    old.hold_ends = ends
    world.checkers.began(doing_of(world, old, plain=plain))
    world.checkers.began(doing_of(world, new))
    assert beside(world) is wrong


@pytest.mark.parametrize("troubled", [True, False])
@in_virtual_time
async def test_a_shard_without_fence_is_promised_it_only_while_it_is_never_in_trouble(
    clock: VirtualClock, troubled: bool
) -> None:
    world, old, new = make_world(clock)
    old.fenced = False
    if troubled:
        world.trouble(OLD)
    world.checkers.began(doing_of(world, old))
    world.checkers.began(doing_of(world, new))
    assert beside(world) is not troubled


@pytest.mark.parametrize(("author", "wrong"), [("user", False), ("sharder-0_1", True)])
@in_virtual_time
async def test_an_object_that_a_user_gives_to_another_may_be_at_work_twice(
    clock: VirtualClock, author: str, wrong: bool
) -> None:
    world, old, new = make_world(clock)
    world.checkers.began(doing_of(world, new))
    before = world.storage.demand(WORKS, WORK)
    meta = {**before.doc["metadata"], "labels": {FAMILY.shard: "fam-0"}}
    world.storage.replace(WORKS, before, {**before.doc, "metadata": meta}, Author(author))
    world.checkers.began(doing_of(world, old))
    assert beside(world) is wrong


@pytest.mark.parametrize("blind", [False, True])
@in_virtual_time
async def test_an_answer_ends_the_excuse_of_a_stopped_machine_whether_it_was_understood_or_not(
    clock: VirtualClock, blind: bool
) -> None:
    world, old, _ = make_world(clock)
    comparison = Comparison(old.clock)
    await ask(comparison, clock)
    with pytest.MonkeyPatch.context() as patched:
        if blind:
            patched.setattr(ServerClock, "heard", lambda *_: NOTHING)
        await stand_still(world, old)
        assert world.machines.is_unaware(OLD)
        await ask(comparison, clock)
    await clock.sleep(0.1)
    assert not world.machines.is_unaware(OLD)
    assert [each.rule for each in world.checkers.violations] == (["notices a stop"] if blind else [])


@in_virtual_time
async def test_an_answer_that_was_not_to_show_a_stop_is_what_later_ones_are_judged_by(clock: VirtualClock) -> None:
    world, old, _ = make_world(clock)
    comparison = Comparison(old.clock)
    await ask(comparison, clock)
    await clock.sleep(MEMORY_SECONDS + 1.0)
    await stand_still(world, old)
    await ask(comparison, clock)
    assert world.machines.is_unaware(OLD), "its connection was idle for too long"
    await clock.sleep(MEMORY_SECONDS / 2)
    await ask(comparison, clock)
    assert not world.checkers.violations, "the answer before has come since"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ServerClock, "heard", lambda *_: NOTHING)
        await stand_still(world, old, 5 * LEAST_SECONDS)
        await ask(comparison, clock)
    assert [each.rule for each in world.checkers.violations] == ["notices a stop"]


@pytest.mark.parametrize(
    ("late", "holder", "ended"),
    [(0.0, "fam-0", True), (0.0, SHARDER_HOLDER, False), (2 * LEAST_SECONDS + 1.0, "fam-0", False)],
    ids=["its own", "a hold of the sharder's", "sent before its machine stood still"],
)
@in_virtual_time
async def test_a_renewal_that_is_confirmed_ends_the_excuse_of_a_stopped_machine(
    clock: VirtualClock, late: float, holder: str, ended: bool
) -> None:
    world, old, new = make_world(clock)
    hold_lease(world, old)
    first = doing_of(world, old)
    world.checkers.began(first)
    link = Link(OLD, Random(1))
    api, namespace = SimApi(world.server, link, old.clock), world.namespace_of_shard(old.name)
    link.answers_late = late

    async def renew() -> None:
        await api.patch(LEASES, old.name, namespace, {"spec": {"holderIdentity": holder}})

    renewing = asyncio.ensure_future(renew()) if late else None
    await clock.sleep(0.0)
    await stand_still(world, old)
    await (renewing or renew())
    await clock.sleep(0.1)
    assert world.machines.is_unaware(OLD) is not ended
    world.checkers.began(doing_of(world, new))
    world.checkers.at_work.stepped(first)
    assert beside(world) is ended
