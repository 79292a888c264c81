"""Two processes of one shard's name: how the lease gets from one to the other, and who may reconcile what meanwhile."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest

from shardsdk.kube.store import Key
from shardsdk.protocol.labels import INSTANCE_ANNOTATION, LEASE_RING_LABEL
from shardsdk.protocol.leases import RELEASED_DURATION_SECONDS, render_instance
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    HELD_RANGES_ANNOTATION,
    RING_ASSIGNMENTS,
    Named,
    render_assignment,
    render_held,
)
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.simulation.happenings import Happenings
from tests.simulation.namesakes import Namesakes
from tests.simulation.ranges.drawing import draw_ranges_plan
from tests.simulation.ranges.liveness import RangeLiveness
from tests.simulation.shards import ShardProcess
from tests.simulation.storage import Author
from tests.simulation.users import Users
from tests.simulation.vocabulary import FAMILY, HASHES, WORKS, Doing
from tests.simulation.world import World

OLD, NEW = "fam-0_1", "fam-0_2"
DURATION_SECONDS: Final = 4
WORK: Final = Key("team-1", "work")


def make_world(clock: VirtualClock) -> World:
    world = World(replace(draw_ranges_plan(1), spread=False), clock)
    kind = {"apiVersion": WORKS.api_version, "kind": WORKS.kind}
    meta = {"namespace": WORK.namespace, "name": WORK.name}
    world.storage.create(WORKS, {**kind, "metadata": meta, "spec": {"keys": []}}, Author("setup"))
    return world


def write_lease(world: World, process: str, holder: str = "fam-0", instance: str | None = None) -> None:
    """A process has the lease say that it holds it, with all ranges, or (no holder) gives it back."""
    namespace, at = world.namespace_of_shard("fam-0"), f"2030-01-01T00:00:{world.now:02.0f}.000000Z"
    annotations = {HELD_RANGES_ANNOTATION: render_held(EVERYWHERE, at)}
    annotations[INSTANCE_ANNOTATION] = render_instance(process if instance is None else instance, at)
    duration = DURATION_SECONDS if holder else RELEASED_DURATION_SECONDS
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": at}
    meta: dict[str, Any] = {"namespace": namespace, "name": "fam-0", "annotations": annotations}
    meta["labels"] = {LEASE_RING_LABEL: FAMILY.ring}
    before = world.storage.get(LEASES, Key(namespace, "fam-0"))
    if before is None:
        world.storage.create(LEASES, {"kind": "Lease", "metadata": meta, "spec": spec}, Author(process))
        return
    doc = {**before.doc, "metadata": {**before.doc["metadata"], "annotations": annotations}, "spec": spec}
    world.storage.replace(LEASES, before, doc, Author(process))


def begin(world: World, process: str) -> None:
    uid = world.storage.demand(WORKS, WORK).uid
    world.stats.reconciles += 1
    world.checkers.began(Doing("fam-0", process, WORKS, uid, world.stats.reconciles, fenced=True))


def start(world: World, process: str, *, running: bool = True) -> None:
    """A process that the world knows, and that does nothing by itself."""
    main = SimpleNamespace(done=lambda: False)
    fake: Any = SimpleNamespace(name="fam-0", identity=process, ring=FAMILY, main=main, running=running)
    world.shards.append(fake)


def broken(world: World) -> list[str]:
    return [each.rule for each in world.checkers.violations]


@pytest.mark.parametrize(("seconds", "rules"), [(2.0, ["waits for its namesake"]), (4.0, [])])
@in_virtual_time
async def test_a_lease_is_not_acquired_before_it_has_run_out(
    clock: VirtualClock, seconds: float, rules: list[str]
) -> None:
    world = make_world(clock)
    write_lease(world, OLD)
    await clock.sleep(seconds)
    write_lease(world, NEW)
    assert broken(world) == rules


@pytest.mark.parametrize(("holder", "instance"), [("", None), ("fam-0", "")])
@in_virtual_time
async def test_one_that_was_given_back_or_left_to_a_successor_is_acquired_at_once(
    clock: VirtualClock, holder: str, instance: str | None
) -> None:
    world = make_world(clock)
    write_lease(world, OLD)
    await clock.sleep(1.0)
    write_lease(world, OLD, holder, instance)
    await clock.sleep(1.0)
    write_lease(world, NEW)
    assert broken(world) == []


@pytest.mark.parametrize(("seconds", "rules"), [(1.0, ["waits for its namesake"]), (3.0, [])])
@in_virtual_time
async def test_one_that_somebody_has_emptied_is_not_acquired_before_it_would_have_run_out(
    clock: VirtualClock, seconds: float, rules: list[str]
) -> None:
    world = make_world(clock)
    write_lease(world, OLD)
    await clock.sleep(1.0)
    lease = world.storage.demand(LEASES, Key(world.namespace_of_shard("fam-0"), "fam-0"))
    emptied = {**lease.doc, "spec": {**lease.doc["spec"], "holderIdentity": ""}}
    world.storage.replace(LEASES, lease, emptied, Author("user"))
    await clock.sleep(seconds)
    write_lease(world, NEW)
    assert broken(world) == rules


@pytest.mark.parametrize(("holder", "instance"), [("", None), ("fam-0", "")])
@pytest.mark.parametrize(("seconds", "rules"), [(1.0, ["releases when done"]), (3.0, [])])
@in_virtual_time
async def test_one_is_not_released_while_a_dead_process_may_have_a_write_executed(
    clock: VirtualClock, seconds: float, rules: list[str], holder: str, instance: str | None
) -> None:
    world = make_world(clock)
    write_lease(world, OLD)
    doing = Doing("fam-0", OLD, WORKS, world.storage.demand(WORKS, WORK).uid, 1, fenced=True)
    world.server.unanswered["its write"] = doing, 2.5
    await clock.sleep(1.0)
    write_lease(world, NEW, instance=OLD)
    await clock.sleep(seconds)
    write_lease(world, NEW, holder, instance)
    assert [each for each in broken(world) if each.startswith("releases")] == rules


@pytest.mark.parametrize("others", [False, True])
@in_virtual_time
async def test_a_pod_that_was_deleted_by_force_is_followed_at_its_end_if_it_was_the_last_of_its_ring(
    clock: VirtualClock, *, others: bool
) -> None:
    world = make_world(clock)
    old = world.start_shard("fam-0", FAMILY)
    assert isinstance(old, ShardProcess)
    if others:
        start(world, "fam-1_1")
    Namesakes(Happenings(world), Users(world))._end(old)
    runs = [each for each in world.shards if each.running]
    assert [each.identity for each in runs] == (["fam-1_1"] if others else ["fam-0_2"])
    for each in runs:
        if isinstance(each, ShardProcess):
            each.kill()


@pytest.mark.parametrize(("running", "rules"), [(True, ["one at work"]), (False, [])])
@in_virtual_time
async def test_no_two_processes_of_a_name_that_take_steps_are_in_reconciles_of_one_object(
    clock: VirtualClock, running: bool, rules: list[str]
) -> None:
    world = make_world(clock)
    start(world, OLD, running=running)
    start(world, NEW)
    write_lease(world, OLD)
    begin(world, OLD)
    await clock.sleep(DURATION_SECONDS + 1.0)
    write_lease(world, NEW)
    begin(world, NEW)
    assert broken(world) == rules


@in_virtual_time
async def test_whoever_has_lost_the_lease_to_its_namesake_begins_nothing(clock: VirtualClock) -> None:
    world = make_world(clock)
    write_lease(world, OLD)
    await clock.sleep(DURATION_SECONDS + 1.0)
    write_lease(world, NEW)
    begin(world, OLD)
    assert broken(world) == ["begins where it holds"]


@pytest.mark.parametrize(("holder_runs", "nobodys"), [(True, False), (False, True)])
@in_virtual_time
async def test_points_are_nobodys_while_only_a_namesake_of_their_process_runs(
    clock: VirtualClock, holder_runs: bool, nobodys: bool
) -> None:
    world = make_world(clock)
    start(world, OLD, running=holder_runs)
    start(world, NEW)
    write_lease(world, OLD)
    spec = msgspec.to_builtins(render_assignment(Named(HASHES[FAMILY.ring], {"fam-0": EVERYWHERE})))
    meta = {"name": FAMILY.ring}
    world.storage.create(RING_ASSIGNMENTS, {"kind": "RingAssignment", "metadata": meta, "spec": spec}, Author("setup"))
    assert isinstance(world.liveness, RangeLiveness)
    assert bool(list(world.liveness._nobodys(FAMILY.ring))) is nobodys
