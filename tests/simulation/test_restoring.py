"""A store that is set back, and what watches are told of it."""

from __future__ import annotations

import pytest

from shardsdk.errors import Gone
from shardsdk.kube.selectors import Selector
from shardsdk.kube.store import Key
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.simulation.schedule import draw_plan
from tests.simulation.storage import Author, Storage
from tests.simulation.vocabulary import PLAINS
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


def test_some_of_the_default_seeds_restore_etcd() -> None:
    plans = [draw_plan(seed) for seed in range(400)]
    meeting = [plan for plan in plans if any(action.what == "restore_etcd" for action in plan.actions)]
    assert 15 <= len(meeting) <= 30
    assert not any(plan.quiet for plan in meeting)
