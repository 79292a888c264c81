"""What a cache holds: namespaces, selectors, indexes, transforms, decoders; alone and set for a manager."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, drop_managed_fields, private_copy
from shardsdk.errors import ConfigurationError
from shardsdk.kube.selectors import Selector
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.protocol.objects import PartialObject
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS
from tests.unit.shardsdk.cache.test_cache import running
from tests.unsharded_rig import Cluster, Ctx, shard_of_ring


def config_map(server: MemoryServer, namespace: str, name: str, **data: str) -> None:
    metadata = {"name": name, "namespace": namespace, "labels": {"team": data.get("team", "none")}}
    server.create(CONFIGMAPS, {"metadata": metadata, "data": data})


def teams(thing: Any) -> Iterable[str]:
    return ((thing.get("data") or {}).get("team", ""),)


def names(things: Iterable[dict[str, Any]]) -> list[str]:
    return [f"{thing['metadata']['namespace']}/{thing['metadata']['name']}" for thing in things]


@in_virtual_time
async def test_several_namespaces_are_one_cache(clock: VirtualClock) -> None:
    server = MemoryServer()
    for namespace in ("a", "b", "c"):
        config_map(server, namespace, "x", team="red")
    cache: Cache[dict[str, Any]] = Cache(
        MemoryApi(server, clock), CONFIGMAPS, clock=clock, rng=Random(1), namespaces=("a", "b"), model=dict,
        indexes={"team": teams},
    )  # fmt: skip
    async with running(cache):
        assert len(cache) == 2
        assert sorted(cache.requests()) == [Request("a", "x"), Request("b", "x")]
        assert cache.get(Request("b", "x")) is not None
        assert cache.get(Request("c", "x")) is None
        assert names(cache.by_index("team", "red")) == ["a/x", "b/x"]
        assert names(cache.by_index("team", "red", namespace="b")) == ["b/x"]
        server.patch(CONFIGMAPS, "x", "b", {"data": {"team": "blue"}})
        config_map(server, "c", "y", team="blue")
        await clock.sleep(1)
        assert names(cache.by_index("team", "blue")) == ["b/x"]
        listed = [thing.metadata.namespace async for page in cache.stream(PartialObject) for thing in page]
        assert listed == ["a", "b"]


@in_virtual_time
async def test_a_cache_of_several_namespaces_is_complete_when_all_of_them_are(clock: VirtualClock) -> None:
    api = MemoryApi(MemoryServer(), clock)
    cache: Cache[PartialObject] = Cache(api, CONFIGMAPS, clock=clock, rng=Random(1), namespaces=("a", "b"))
    api.fault = Fault.REFUSED
    task = asyncio.create_task(cache.run())
    await clock.sleep(5)
    assert (cache.synced, cache.failure is None) == (False, False)
    api.fault = Fault.NONE
    await cache.wait_synced()
    assert (cache.synced, cache.failure) == (True, None)
    task.cancel()
    await asyncio.wait([task])


@in_virtual_time
async def test_fields_and_labels_select(clock: VirtualClock) -> None:
    server = MemoryServer()
    for name in ("one", "two"):
        config_map(server, "a", name, team="red")
    config_map(server, "a", "three", team="blue")
    selector = Selector(labels="team=red", fields="metadata.name!=two")
    cache: Cache[PartialObject] = Cache(
        MemoryApi(server, clock), CONFIGMAPS, clock=clock, rng=Random(1), selector=selector
    )
    async with running(cache):
        assert cache.requests() == [Request("a", "one")]


@in_virtual_time
async def test_what_an_index_hands_out_can_be_changed_and_the_cache_does_not(clock: VirtualClock) -> None:
    server = MemoryServer()
    config_map(server, "a", "x", team="red")
    cache: Cache[dict[str, Any]] = Cache(
        MemoryApi(server, clock), CONFIGMAPS, clock=clock, rng=Random(1), model=dict, indexes={"team": teams}
    )
    async with running(cache):
        cache.by_index("team", "red")[0]["data"]["team"] = "spoilt"
        assert cache.by_index("team", "red")[0]["data"]["team"] == "red"
        with pytest.raises(KeyError, match="no index of these objects is called 'colour', only team"):
            cache.by_index("colour", "red")


def test_an_index_of_the_caches_own_cannot_be_replaced() -> None:
    with pytest.raises(ConfigurationError, match="'controller', which is taken"):
        Cache(None, CONFIGMAPS, clock=None, rng=Random(1), indexes={"controller": teams})  # type: ignore[arg-type]


@in_virtual_time
async def test_a_transform_decides_what_is_kept(clock: VirtualClock) -> None:
    server = MemoryServer()
    config_map(server, "a", "x", team="red", secret="much")

    def drop(thing: dict[str, Any]) -> dict[str, Any]:
        thing.get("data", {}).pop("secret", None)
        return drop_managed_fields(thing)

    cache: Cache[dict[str, Any]] = Cache(
        MemoryApi(server, clock), CONFIGMAPS, clock=clock, rng=Random(1), model=dict, transform=drop
    )
    async with running(cache):
        found = cache.get(Request("a", "x"))
        assert found is not None
        assert found["data"] == {"team": "red"}


def test_a_typed_model_is_copied_as_well() -> None:
    from kubernetes.aio.client.models import V1ConfigMap

    model: Any = V1ConfigMap
    thing = model(data={"k": "v"})
    private_copy(thing).data["k"] = "spoilt"
    assert thing.data == {"k": "v"}


# -- set for a manager ---------------------------------------------------------------


@in_virtual_time
async def test_a_managers_controllers_share_what_is_set_for_a_resource(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("main", shard="shard-1")
    for namespace in ("a", "b", "c"):
        config_map(cluster.server, namespace, "x", team="red")
    found: dict[str, list[str]] = {}

    def looking(name: str) -> Any:
        async def look(context: Ctx) -> None:
            found[name] = names(context.cache(CONFIGMAPS).by_index("team", "red"))

        return look

    replica = cluster.replica()
    manager = shard_of_ring().cache(CONFIGMAPS, namespaces=["a", "b"], indexes={"team": teams})
    for name, spec in {"sharded": controller_for(SECRETS), "all": controller_for(SECRETS).on_every_replica()}.items():
        watching = spec.watches(CONFIGMAPS, lambda thing: [], dict)
        manager.add(watching.options(name=name).reconcile(looking(name)))
    process = replica.start(manager)
    await clock.sleep(5)
    assert found == {"sharded": ["a/x", "b/x"], "all": ["a/x", "b/x"]}
    assert sum(api.lists.count("configmaps") for api in replica.apis) == 2, "one for each namespace"
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_a_manager_watches_the_namespaces_that_it_is_told_to(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    for namespace in ("a", "b", "c"):
        cluster.server.create(SECRETS, {"metadata": {"name": namespace, "namespace": namespace}})
    replica = cluster.replica()
    spec = controller_for(SECRETS).reconcile(replica.note)
    process = replica.start(manager := Manager(watch_namespace=["a", "c"]).add(spec))
    await clock.sleep(5)
    assert replica.reconciled == ["a", "c"]
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_the_empty_namespace_means_all_of_them(clock: VirtualClock) -> None:
    """As WATCH_NAMESPACE="" does for Go programs."""
    cluster = Cluster(clock)
    for namespace in ("a", "b"):
        cluster.server.create(SECRETS, {"metadata": {"name": namespace, "namespace": namespace}})
    replica = cluster.replica()
    spec = controller_for(SECRETS).reconcile(replica.note)
    process = replica.start(manager := Manager(watch_namespace="").add(spec))
    await clock.sleep(5)
    assert replica.reconciled == ["a", "b"]
    manager.stopping.set()
    assert await process is ExitCode.OK


@pytest.mark.parametrize(
    ("namespaces", "remedy"), [("a,b", "give several as a list"), (["a", "B"], "cannot be"), (["", "a"], "leave")]
)
@in_virtual_time
async def test_namespaces_that_cannot_be_say_what_to_change(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, namespaces: Any, remedy: str
) -> None:
    replica = Cluster(clock).replica()
    for manager in (
        Manager(watch_namespace=namespaces),
        Manager().cache(SECRETS, namespaces=[namespaces] if isinstance(namespaces, str) else namespaces),
    ):
        caplog.clear()
        assert await replica.start(manager.add(controller_for(SECRETS).reconcile(replica.note))) is (
            ExitCode.CONFIGURATION
        )
        assert remedy in caplog.text


@in_virtual_time
async def test_a_shard_must_see_all_of_its_objects(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    replica = Cluster(clock).replica()
    spec = controller_for(SECRETS).owns(CONFIGMAPS).reconcile(replica.note)
    manager = shard_of_ring().cache(SECRETS, selector=Selector(labels="team=red")).add(spec)
    assert await replica.start(manager) is ExitCode.CONFIGURATION
    assert "must see each of its objects" in caplog.text


@in_virtual_time
async def test_a_shards_children_may_be_selected(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("main", shard="shard-1")
    replica, seen = cluster.replica(), list[Any]()

    async def look(context: Ctx) -> None:
        seen.append(sorted(request.name for request in context.cache(CONFIGMAPS).requests()))

    for name, team, shard in (("mine", "red", "shard-1"), ("blue", "blue", "shard-1"), ("other", "red", "shard-2")):
        labels = {"team": team, RING.shard: shard}
        cluster.server.create(CONFIGMAPS, {"metadata": {"name": name, "namespace": "default", "labels": labels}})
    manager = shard_of_ring().cache(CONFIGMAPS, selector=Selector(labels="team=red"))
    process = replica.start(manager.add(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(look)))
    await clock.sleep(5)
    assert seen == [["mine"]]
    manager.stopping.set()
    assert await process is ExitCode.OK
