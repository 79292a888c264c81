"""What kopf is told before it watches anything."""

from __future__ import annotations

import asyncio
import logging
import re
from types import SimpleNamespace
from typing import Any

import kopf
import msgspec
import pytest
from kopf._cogs.structs.ephemera import AnyMemo
from kopf._cogs.structs.references import Resource as KopfResource
from kopf._core.actions.lifecycles import all_at_once
from kopf._core.engines import activities
from kopf._core.engines.indexing import OperatorIndexers
from kopf._core.intents.causes import Activity

from shardsdk.contrib.kopf import KopfShard, _check_options, _run_until_either_ends
from shardsdk.errors import ConfigurationError, NotFound
from shardsdk.process.process import ExitCode
from shardsdk.protocol.namespaces import NAME_LABEL
from shardsdk.protocol.objects import Resource
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, Hold

OURS = f"{RING.shard}=shard-1"


async def _no_ring(*_: Any, **__: Any) -> None:
    raise NotFound("there is no such ring", status=404)


async def settings_of(
    shard: KopfShard,
    registry: kopf.OperatorRegistry,
    monkeypatch: pytest.MonkeyPatch,
    get: Any = _no_ring,
    **given: Any,
) -> Any:
    """The settings of an operator under `shard` once its startup handlers have run, in kopf's order."""
    lease: Any = SimpleNamespace(ring=RING, name="shard-1", fence=Hold(), lost=asyncio.Event())
    access = SimpleNamespace(host="https://here", namespace="default")
    settings = kopf.OperatorSettings()

    async def spawn(*, registry: kopf.OperatorRegistry, **_: Any) -> list[asyncio.Task[Any]]:
        await activities.run_activity(
            lifecycle=all_at_once, registry=registry, settings=settings, activity=Activity.STARTUP,
            indices=OperatorIndexers().indices, memo=AnyMemo(kopf.Memo()),
        )  # fmt: skip
        return []

    async def run(*_: Any, **__: Any) -> None:
        """There is nothing to run."""

    monkeypatch.setattr(kopf, "spawn_tasks", spawn)
    monkeypatch.setattr(kopf, "run_tasks", run)
    shard._lease = lease

    api: Any = SimpleNamespace(access=access, get=get)
    session: Any = object()
    await shard._operate(lease, api, session, {"registry": registry, **given})
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


async def test_startup_handlers_that_do_not_succeed_are_told_of_until_they_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shardsdk.contrib.kopf.STARTUP_SECONDS", 0.01)
    registry = kopf.OperatorRegistry()

    def told() -> int:
        return sum(
            each.msg == "Startup handlers have not succeeded for %g s; its objects wait" for each in caplog.records
        )

    @kopf.on.startup(registry=registry)
    async def wait(**_: Any) -> None:
        while told() < 2:
            await asyncio.sleep(0.001)
        assert "Shard is working" not in caplog.text

    with caplog.at_level(logging.INFO, "shardsdk"):
        await settings_of(KopfShard(RING.ring, main=[SECRETS]), registry, monkeypatch)
    assert "Shard is working" in caplog.text


@pytest.mark.parametrize("failures", [0, 1])
async def test_labels_of_the_ring_are_no_change_of_an_object(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, retry: int, **_: Any) -> None:
        if retry < failures:
            raise kopf.TemporaryError("what it needs is not there yet", delay=0.01)
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="example.com")

    settings = await settings_of(KopfShard(RING.ring, main=[SECRETS]), registry, monkeypatch)
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


async def test_an_operator_is_waited_for_however_often_that_is_cancelled() -> None:
    """The lease is given up when this returns."""
    checking = asyncio.create_task(asyncio.Event().wait())
    gate, stopped = asyncio.Event(), list[str]()

    async def operate() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await gate.wait()
            stopped.append("in order")

    running = asyncio.create_task(_run_until_either_ends(operate(), checking))  # type: ignore[arg-type]
    for _ in range(3):
        await asyncio.sleep(0)
        running.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not running.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stopped == ["in order"]
    checking.cancel()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"standalone": False}, "standalone=False"),
        ({"peering_name": "default"}, "peering_name='default'"),
        ({"priority": 0}, "priority=0"),
        ({"memories": object()}, "memories="),
        ({"vault": object()}, "vault="),
    ],
)
async def test_what_the_shard_has_itself_is_refused_before_the_lease(given: dict[str, Any], reason: str) -> None:
    shard = KopfShard(RING.ring, main=[SECRETS], kubeconfig="/nowhere")
    with pytest.raises(ConfigurationError, match=reason):
        _check_options(given)
    assert await shard.run_async(registry=kopf.OperatorRegistry(), **given) is ExitCode.CONFIGURATION


async def test_an_operator_that_says_that_it_stands_alone_is_taken_at_its_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"standalone": True, "peering_name": None, "namespaces": ["a"]}
    _check_options(given)
    assert given == {"namespaces": ["a"]}


async def test_an_async_handler_that_would_wait_for_itself_is_told_to_await(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, shard = kopf.OperatorRegistry(), KopfShard(RING.ring, main=[SECRETS])

    async def one() -> int:
        return 1

    @kopf.on.startup(registry=registry)
    async def wait(**_: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"shard.call\(…\) is for plain handlers: in an async one, await"):
            shard.call(one())
        assert await asyncio.to_thread(shard.call, one()) == 1

    await settings_of(shard, registry, monkeypatch)


NODES = Resource("", "v1", "nodes", "Node", namespaced=False)


@pytest.mark.parametrize(
    ("main", "given", "told"),
    [
        ([SECRETS], {"namespaces": ["a", "b"]}, True),
        ([SECRETS], {"namespace": "a"}, True),
        ([SECRETS], {"namespaces": ["a", "b", "c"]}, False),
        ([SECRETS], {"clusterwide": True}, False),
        ([SECRETS], {}, False),
        ([SECRETS], {"namespaces": ["team-*"]}, False),
        ([SECRETS], {"namespaces": [re.compile("a")]}, False),
        ([NODES], {"namespaces": ["a"]}, False),
    ],
)
async def test_a_ring_that_covers_more_than_the_operator_watches_is_told(
    main: list[Resource], given: dict[str, Any], told: bool, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    looked = asyncio.Event()
    listed = [{"group": "", "resource": each.plural} for each in main]

    async def ring(*_: Any, model: Any, **__: Any) -> Any:
        looked.set()
        selector = {"matchExpressions": [{"key": NAME_LABEL, "operator": "In", "values": ["a", "b", "c"]}]}
        return msgspec.convert({"spec": {"resources": listed, "namespaceSelector": selector}}, model)

    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def wait(**_: Any) -> None:
        await looked.wait()

    await settings_of(KopfShard(RING.ring, main=main), registry, monkeypatch, ring, **given)
    assert any("The ring covers namespaces" in line.message for line in caplog.records) is told


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


def test_lines_that_a_configuration_of_logging_has_disabled_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("shardsdk.kopf-test")
    monkeypatch.setattr(logger, "disabled", True)
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])

    async def tell(self: KopfShard) -> ExitCode:
        return ExitCode.FAILED if logger.disabled else ExitCode.OK

    monkeypatch.setattr(KopfShard, "run_async", tell)
    with pytest.raises(SystemExit) as ended:
        KopfShard(RING.ring, main=[SECRETS]).run()
    assert ended.value.code == ExitCode.OK
