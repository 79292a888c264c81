"""A store that is set back, and what watches are told of it."""

from __future__ import annotations

import pytest

from shardsdk.errors import Gone
from shardsdk.kube.selectors import Selector
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import FENCED_ANNOTATION, LEASE_RING_LABEL, SHARDER_HOLDER
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.simulation.ranges.drawing import BREAKABLE, draw_ranges_plan
from tests.simulation.schedule import BY_CHANCE, draw_plan
from tests.simulation.storage import Author, Storage, Version
from tests.simulation.vocabulary import FAMILY, PLAINS, namespace_of_shard, ring_object
from tests.simulation.world import World

USER = Author("user")


def make(storage: Storage, name: str) -> None:
    storage.create(PLAINS, {"metadata": {"namespace": "blue", "name": name}}, USER)


def test_what_came_after_the_backup_never_happened_and_versions_are_given_out_again() -> None:
    storage = Storage(lambda: "now")
    make(storage, "kept")
    make(storage, "deleted later")
    backup, before = storage.number, list(storage.objects(PLAINS))
    storage.delete(PLAINS, Key("blue", "deleted later"), USER, {})
    make(storage, "forgotten")
    assert [commit.latest for commit in storage.set_back(backup)] == before == list(storage.objects(PLAINS))
    assert storage.since(PLAINS, backup) == []
    make(storage, "new")
    assert storage.demand(PLAINS, Key("blue", "new")).number == backup + 1


@in_virtual_time
async def test_a_watch_of_the_future_is_told_nothing_until_then_and_one_of_the_past_that_it_is_gone(
    clock: VirtualClock,
) -> None:
    world = World(draw_plan(1), clock)
    storage, server, link = world.storage, world.server, world.link("watcher")
    backup = storage.number
    for name in "abc":
        make(storage, name)
    future = storage.number - 1
    storage.set_back(backup)
    watch = server.open_watch(link, PLAINS, None, Selector(), str(future), None)
    for name in "xyz":
        make(storage, name)
    line = await watch.next(30.0)
    assert line is not None
    assert line.version is not None
    assert line.version.key.name == "z"
    storage.set_back(backup, raised_by=1000)
    with pytest.raises(Gone):
        server.open_watch(link, PLAINS, None, Selector(), str(storage.number - 1), None)


@pytest.mark.parametrize(("lost", "heard", "taken_at", "in_time"), [
    (False, False, 10.5, True),  # as its leader may have waited for it before the restore, which is at 10 s
    (True, True, 10.5, False),  # what was renewed at 8 s lasts until 14 s, whatever the store knows of it
    (True, True, 13.5, False),
    (True, True, 14.5, True),
    (True, False, 10.5, True),  # nobody can respect what no watch has told
])  # fmt: skip
@in_virtual_time
async def test_a_hold_lasts_until_it_has_run_out_after_the_last_renewal_and_no_longer_also_if_a_restore_has_lost_that(
    clock: VirtualClock, *, lost: bool, heard: bool, taken_at: float, in_time: bool
) -> None:
    world = World(draw_plan(1), clock)
    world.storage.create(CLUSTERRINGS, ring_object(FAMILY.ring, select_namespaces=False), USER)
    backup = _hold_lease(world, "fam-0", "fam-0_1").number
    await clock.sleep(8.0)
    world.server.heard["sharder-0_1"] = backup
    if lost:
        renewed = _hold_lease(world, "fam-0", "fam-0_2").number
        world.server.heard["sharder-0_1"] = renewed if heard else renewed - 1
    await clock.sleep(2.0)
    world.restores._put_back(backup, 0, 0.0, clock.monotonic())
    await clock.sleep(taken_at - 10.0)
    _hold_lease(world, SHARDER_HOLDER, "sharder-0_1")
    assert [each.rule for each in world.checkers.violations] == ([] if in_time else ["takes over in time"])


def _hold_lease(world: World, holder: str, author: str) -> Version:
    """Have somebody hold the lease of shard `fam-0`, with a fence, for 6 s."""
    now, key = render_micro_time(world.clock.now()), Key(namespace_of_shard("fam-0"), "fam-0")
    metadata = {"namespace": key.namespace, "name": key.name, "labels": {LEASE_RING_LABEL: FAMILY.ring},
                "annotations": {FENCED_ANNOTATION: now}}  # fmt: skip
    doc = {"metadata": metadata, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 6, "renewTime": now}}
    before = world.storage.get(LEASES, key)
    if before is None:
        return world.storage.create(LEASES, doc, Author(author))
    return world.storage.replace(LEASES, before, doc, Author(author))


def test_some_of_the_default_seeds_restore_etcd() -> None:
    plans = [draw_plan(seed) for seed in range(400)]
    meeting = [plan for plan in plans if any(action.what == "restore_etcd" for action in plan.actions)]
    assert 15 <= len(meeting) <= 30
    assert not any(plan.quiet for plan in meeting)


def test_some_seeds_of_rings_by_ranges_restore_etcd_and_some_leave_something_broken() -> None:
    plans = [draw_ranges_plan(seed) for seed in range(200)]
    assert sum(any(action.what == "restore_etcd" for action in plan.actions) for plan in plans) > 10
    assert {plan.broken for plan in plans} == {None, *BREAKABLE}
    assert {plan.scenario for plan in plans} == {None, *BY_CHANCE}
