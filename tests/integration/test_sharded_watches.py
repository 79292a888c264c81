"""What lists and watches by hash range of a real API server do, where it filters and where it does not."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from localcluster import AdminClient, AdminError, Component, ComponentFailed, ControlPlane
from sharder.kubectl.check.ranges import read_filtering
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client

#: Two halves of the hash space, and an object's place in it.
_HALVES = (
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
    "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')",
)
_PATH = "/api/v1/namespaces/default/configmaps"
_LAST = "last-"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filtering() -> AsyncIterator[ControlPlane]:
    """A control plane whose first API server filters."""
    async with ControlPlane(feature_gates={"ShardedListAndWatch": True}, controllers=()) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unfiltering(filtering: ControlPlane) -> Component:
    """One more API server on the same etcd, with the gate off."""
    return await filtering.add_apiserver(["--feature-gates=ShardedListAndWatch=false"])


async def _names(admin: AdminClient, selector: str) -> set[str]:
    answer = await admin.request("GET", _PATH, query={"shardSelector": selector})
    return {item["metadata"]["name"] for item in answer["items"]}


async def _make(admin: AdminClient, prefix: str, count: int) -> set[str]:
    made = [
        await admin.create("v1/configmaps", {"metadata": {"name": f"{prefix}-{number}"}}, "default")
        for number in range(count)
    ]
    return {each["metadata"]["name"] for each in made}


async def test_each_object_is_in_one_half_where_the_server_filters_and_in_both_where_it_does_not(
    filtering: ControlPlane, unfiltering: Component
) -> None:
    async with filtering.admin() as admin, filtering.admin(unfiltering) as other:
        made = await _make(admin, "half", 40)
        low, high = [await _names(admin, half) & made for half in _HALVES]
        assert low | high == made
        assert not low & high
        assert low
        assert high
        assert await _names(admin, " || ".join(_HALVES)) >= made
        for half in _HALVES:
            assert await _names(other, half) >= made, "the parameter is ignored without a word"


async def test_only_a_server_that_filters_says_so_in_a_list(filtering: ControlPlane, unfiltering: Component) -> None:
    path, query = "/apis/coordination.k8s.io/v1/leases", {"limit": "1", "shardSelector": _HALVES[0]}
    async with filtering.admin() as admin, filtering.admin(unfiltering) as other:
        said = await admin.request("GET", path, query=query)
        assert said["metadata"]["shardInfo"] == {"selector": _HALVES[0]}
        assert "shardInfo" not in (await other.request("GET", path, query=query))["metadata"]


async def test_a_watch_shows_the_events_of_its_range_alone(filtering: ControlPlane) -> None:
    async with filtering.admin() as admin:
        await _make(admin, "there-before", 20)
        begun = [asyncio.Event() for _ in _HALVES]
        watches = [
            asyncio.create_task(_watch(filtering, half, event)) for half, event in zip(_HALVES, begun, strict=True)
        ]
        for event in begun:
            await event.wait()
        made = await _make(admin, "watched", 30)
        while not all(each.done() for each in watches):
            # Until each half has got one: then its watch has shown everything before.
            await admin.create("v1/configmaps", {"metadata": {"generateName": _LAST}}, "default")
        for each, half in zip(watches, _HALVES, strict=True):
            assert (await each) & made == await _names(admin, half) & made != set()


async def _watch(plane: ControlPlane, selector: str, begun: asyncio.Event) -> set[str]:
    """The names of the objects that a watch shows before one that begins with `_LAST`."""
    seen: set[str] = set()
    async with (
        plane.admin() as admin,
        aclosing(admin.changes("v1/configmaps", "default", shard_selector=selector)) as changes,
    ):
        async for event, item in changes:
            # Something is listed in each half; the watch goes on from that list.
            begun.set()
            name = item["metadata"]["name"]
            if event == "ADDED" and name.startswith(_LAST):
                return seen
            if event == "ADDED":
                seen.add(name)
    raise AssertionError(f"the watch ended after {seen}")


async def test_a_selector_that_says_nothing_is_refused(filtering: ControlPlane) -> None:
    async with filtering.admin() as admin:
        with pytest.raises(AdminError) as raised:
            await _names(admin, "shardRange(object.metadata.name, '0x0', '0x1')")
    assert raised.value.status == 500, "not 400: nobody should ask again because of the status"


async def test_a_feature_that_the_server_does_not_know_keeps_it_from_starting_and_is_named() -> None:
    plane = ControlPlane(feature_gates={"NoSuchFeature": True}, controllers=())
    with pytest.raises(ComponentFailed, match="unrecognized feature gate: NoSuchFeature"):
        await plane.start()
    shutil.rmtree(plane.folder)


async def test_the_plugin_can_tell_that_this_api_server_filters(filtering: ControlPlane) -> None:
    async with Client(await load_access(str(filtering.admin_kubeconfig))) as api:
        assert await read_filtering(api) is True
