"""What kopf is told before it watches anything."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.references import Resource as KopfResource
from kopf._core.intents.causes import Activity

from shardsdk.contrib.kopf import KopfShard, _run_until_either_ends
from shardsdk.errors import ConfigurationError, NotFound
from shardsdk.process.process import ExitCode
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, Hold

OURS = f"{RING.shard}=shard-1"


async def _no_ring(*_: Any, **__: Any) -> None:
    raise NotFound("there is no such ring", status=404)


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
    api: Any = SimpleNamespace(access=access, get=_no_ring)
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


async def test_a_ring_that_turns_out_to_be_by_ranges_stops_the_operator_in_order() -> None:
    stopped: list[str] = []

    async def operate() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            stopped.append("in order")

    async def check() -> None:
        await asyncio.sleep(0)
        raise ConfigurationError("by ranges")

    with pytest.raises(ConfigurationError, match="by ranges"):
        await _run_until_either_ends(operate(), asyncio.create_task(check()))
    assert stopped == ["in order"]


async def test_an_operator_that_ends_or_is_cancelled_ends_as_it_did_without_the_check() -> None:
    checking = asyncio.create_task(asyncio.Event().wait())
    stopped: list[str] = []

    async def fail() -> None:
        raise RuntimeError("by itself")

    async def operate() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("in order")

    with pytest.raises(RuntimeError, match="by itself"):
        await _run_until_either_ends(fail(), checking)  # type: ignore[arg-type]
    running = asyncio.create_task(_run_until_either_ends(operate(), checking))  # type: ignore[arg-type]
    for _ in range(3):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stopped == ["in order"]
    checking.cancel()


@pytest.mark.parametrize("told", [True, False], ids=["as the program says", "as kopf run does"])
def test_what_goes_wrong_is_shown_though_the_program_says_nothing_of_logs(
    told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, own = logging.getLogger(), logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [own] if told else [])
    level = root.level
    root.setLevel(logging.WARNING)
    asyncios = logging.getLogger("asyncio")
    monkeypatch.setattr(asyncios, "handlers", [])
    monkeypatch.setattr(asyncios, "propagate", True)

    async def fail(self: KopfShard) -> ExitCode:
        return ExitCode.CONFIGURATION

    monkeypatch.setattr(KopfShard, "run_async", fail)
    with pytest.raises(SystemExit):
        KopfShard(RING.ring, main=[SECRETS]).run()
    assert (root.handlers == [own]) is told
    assert len(root.handlers) == 1
    assert root.isEnabledFor(logging.INFO) is not told
    root.setLevel(level)
