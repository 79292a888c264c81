"""What kopf is told before it watches anything."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.references import Resource as KopfResource
from kopf._core.intents.causes import Activity

from shardsdk.contrib.kopf import KopfShard
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, Hold

OURS = f"{RING.shard}=shard-1"


async def settings_of(shard: KopfShard, registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings of an operator under `shard` once its startup handlers have run, in kopf's order."""
    lease: Any = SimpleNamespace(ring=RING, name="shard-1", fence=Hold(), lost=asyncio.Event())
    access = SimpleNamespace(host="https://here", namespace="default")
    settings = kopf.OperatorSettings()

    async def spawn(*, registry: kopf.OperatorRegistry, **_: Any) -> list[asyncio.Task[Any]]:
        for handler in registry._activities.get_handlers(activity=Activity.STARTUP):
            startup: Any = handler.fn
            await startup(settings=settings)
        return []

    async def run(*_: Any, **__: Any) -> None:
        """There is nothing to run."""

    monkeypatch.setattr(kopf, "spawn_tasks", spawn)
    monkeypatch.setattr(kopf, "run_tasks", run)
    shard._lease = lease
    api: Any = SimpleNamespace(access=access)
    session: Any = object()
    await shard._operate(lease, api, session, {"registry": registry})
    return settings


def selected(settings: kopf.OperatorSettings, group: str, plural: str) -> list[str]:
    """The label selectors that kopf would list and watch a resource with."""
    resource = KopfResource(group, "v1", plural, kind=plural.removesuffix("s").title(), namespaced=True)
    return list(settings.watching.label_selectors.collect(resource))


async def test_kopf_watches_only_this_shards_objects_of_what_the_ring_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = KopfShard(RING.ring, main=[SECRETS], controlled=[CONFIGMAPS])
    settings = await settings_of(shard, kopf.OperatorRegistry(), monkeypatch)
    assert selected(settings, "", "secrets") == [OURS]
    assert selected(settings, "", "configmaps") == [OURS]
    for group, plural in (("", "namespaces"), ("", "pods"), ("apiextensions.k8s.io", "customresourcedefinitions")):
        assert selected(settings, group, plural) == []
    assert selected(settings, "example.com", "secrets") == [], "of another group"


async def test_selectors_of_the_operators_own_are_kept_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.watching.label_selectors["secrets"] = "team=ours"

    settings = await settings_of(KopfShard(RING.ring, main=[SECRETS]), registry, monkeypatch)
    assert sorted(selected(settings, "", "secrets")) == sorted(["team=ours", OURS])


async def test_labels_of_the_ring_are_no_change_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = await settings_of(KopfShard(RING.ring, main=[SECRETS]), kopf.OperatorRegistry(), monkeypatch)
    storage = settings.persistence.diffbase_storage
    body: Any = {"metadata": {"name": "a", "labels": {"mine": "1"}}}
    placed: Any = {"metadata": {"name": "a", "labels": {"mine": "1", RING.shard: "shard-1", RING.drain: "true"}}}
    assert storage.build(body=kopf.Body(placed)) == storage.build(body=kopf.Body(body))
