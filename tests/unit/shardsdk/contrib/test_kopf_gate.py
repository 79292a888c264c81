"""The gate before kopf: which events kopf processes, and when a drained object is given away."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.references import Resource as KopfResource
from kopf._core.engines.indexing import OperatorIndexers
from kopf._core.reactor.inventory import ResourceMemories

from shardsdk.contrib.kopf_gate import Gate
from shardsdk.errors import NotFound, NotServed
from shardsdk.kube import absence
from shardsdk.protocol.objects import GroupResource
from shardsdk.reconcile.drains import UNSERVED_SECONDS
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, ME, RING, SECRETS, Hold

MAIN = KopfResource("", "v1", "secrets", kind="Secret", namespaced=True)
CHILDREN = KopfResource("", "v1", "configmaps", kind="ConfigMap", namespaced=True)
UNSHARED = KopfResource("", "v1", "pods", kind="Pod", namespaced=True)
HANDLED = {"kopf.zalando.org/last-handled-configuration": "{}"}


@dataclass
class Lease:
    fence: Hold = field(default_factory=Hold)
    lost: asyncio.Event = field(default_factory=asyncio.Event)


class Indexed:
    """kopf's toggles: what still keeps its handlers from being called."""

    def __init__(self) -> None:
        self.waits_for = {"this object"}

    async def drop_toggle(self, toggle: str) -> None:
        self.waits_for.discard(toggle)


class Rig:
    def __init__(self, clock: VirtualClock, drain_timeout_seconds: float | None = None) -> None:
        self.clock = clock
        self.server = MemoryServer()
        self.lease = Lease()
        self.api = MemoryApi(self.server, clock, fence=self.lease.fence, served=[SECRETS, CONFIGMAPS])
        self.memories = ResourceMemories()
        self.processed: list[tuple[str | None, str]] = []
        self.busy_seconds = 0.0
        self.gate = Gate(
            self.process, ME, self.api, self.lease, settle=self.api.writes_settled,
            main=[SECRETS], controlled=[CONFIGMAPS],
            memories=self.memories, drain_timeout_seconds=drain_timeout_seconds, clock=clock,
        )  # fmt: skip

    async def process(self, **event: Any) -> str | None:
        raw = event["raw_event"]
        self.processed.append((raw["type"], raw["object"]["metadata"]["name"]))
        await self.clock.sleep(self.busy_seconds)
        return None

    def secret(self, name: str = "mine", shard: str | None = "shard-1", **more: Any) -> dict[str, Any]:
        labels = {RING.shard: shard} if shard else {}
        return self.server.create(
            SECRETS, {"metadata": {"name": name, "namespace": "default", "labels": labels, **more}}
        )

    def change(self, name: str = "mine", **labels: str | None) -> dict[str, Any]:
        wanted = {{"shard": RING.shard, "drain": RING.drain}[key]: value for key, value in labels.items()}
        return self.server.patch(SECRETS, name, "default", {"metadata": {"labels": wanted}})

    def labels(self, name: str = "mine") -> dict[str, str]:
        return self.server.get(SECRETS, name, "default")["metadata"].get("labels") or {}

    async def event(self, kind: str | None, body: dict[str, Any], resource: KopfResource = MAIN, **more: Any) -> None:
        await self.gate(
            resource=resource, raw_event={"type": kind, "object": body}, memories=self.memories,
            settings=kopf.OperatorSettings(), indexers=OperatorIndexers(), **more,
        )  # fmt: skip

    async def daemon(self, body: dict[str, Any], *, lasts: float) -> asyncio.Task[None]:
        """What kopf keeps of a daemon that takes some time to end once it is told to."""
        from kopf._core.engines.daemons import Daemon
        from kopf._core.intents.handlers import DaemonHandler
        from kopf._core.intents.stoppers import DaemonStopper

        memory = await self.memories.recall(body)  # type: ignore[arg-type]
        running, stopper = memory.daemons_memory.running_daemons, DaemonStopper()
        handler: Any = object.__new__(DaemonHandler)
        for name in ("cancellation_backoff", "cancellation_timeout", "cancellation_polling", "id", "fn", "param"):
            object.__setattr__(handler, name, None)

        async def run() -> None:
            try:
                await stopper.async_event.wait()
                await self.clock.sleep(lasts)
            finally:
                del running[handler.id]

        task = asyncio.create_task(run())
        running[handler.id] = Daemon(task=task, logger=logging.getLogger("kopf"), handler=handler, stopper=stopper)
        await asyncio.sleep(0)
        return task


@in_virtual_time
async def test_kopf_processes_what_is_this_shards_and_nothing_else(clock: VirtualClock) -> None:
    rig = Rig(clock)
    for name, shard in (("mine", "shard-1"), ("other", "shard-2"), ("nobody", None)):
        indexed = Indexed()
        await rig.event(None, rig.secret(name, shard), resource_indexed="this object", operator_indexed=indexed)
        assert indexed.waits_for == ({"this object"} if name == "mine" else set())  # kopf itself drops it for its own
    await rig.event(None, rig.secret("pod"), UNSHARED)
    assert rig.processed == [(None, "mine")]


@in_virtual_time
async def test_without_the_lease_nothing_begins(clock: VirtualClock) -> None:
    rig = Rig(clock)
    body = rig.secret()
    rig.lease.fence.seconds = 0.0
    await rig.event("ADDED", body)
    rig.lease.fence.seconds = 5.0
    rig.lease.lost.set()
    await rig.event("ADDED", body)
    assert rig.processed == []


@in_virtual_time
async def test_a_lost_lease_cancels_what_runs(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.busy_seconds = 1000.0
    body = rig.secret()
    working = asyncio.create_task(rig.event("ADDED", body))
    daemon = await rig.daemon(body, lasts=1000.0)
    watching = asyncio.create_task(rig.gate.stop_when_lost())
    await clock.sleep(1)
    rig.lease.lost.set()
    await asyncio.wait([watching, working, daemon])
    assert working.cancelled()
    assert daemon.cancelled()
    assert clock.monotonic() < 10


@in_virtual_time
async def test_a_drained_object_is_given_away_by_one_patch_and_its_end_is_not_told(clock: VirtualClock) -> None:
    rig = Rig(clock)
    first = rig.secret()
    await rig.event("ADDED", first)
    drained = rig.change(drain="true")
    before = len(rig.server.log)
    await rig.event("MODIFIED", drained)
    assert rig.labels() == {}
    assert len(rig.server.log) == before + 1
    await rig.event("MODIFIED", first)  # late, by another watch
    await rig.event("DELETED", drained)  # it left the selection
    assert rig.processed == [("ADDED", "mine")]


@in_virtual_time
async def test_a_drain_waits_for_handlers_at_another_version_of_the_object(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.busy_seconds = 50.0
    working = asyncio.create_task(rig.event("ADDED", rig.secret()))
    await clock.sleep(1)
    giving = asyncio.create_task(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(40)
    assert RING.drain in rig.labels()
    await asyncio.gather(working, giving)
    assert rig.labels() == {}


@in_virtual_time
async def test_a_drain_waits_for_the_daemons(clock: VirtualClock) -> None:
    rig = Rig(clock)
    body = rig.secret()
    daemon = await rig.daemon(body, lasts=30.0)
    giving = asyncio.create_task(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(29)
    assert RING.drain in rig.labels()
    assert not daemon.done()
    await giving
    assert daemon.done()
    assert rig.labels() == {}


@in_virtual_time
async def test_a_daemon_that_does_not_end_is_cancelled_at_the_limit(clock: VirtualClock) -> None:
    rig = Rig(clock, drain_timeout_seconds=5.0)
    body = rig.secret()
    daemon = await rig.daemon(body, lasts=1000.0)
    await rig.event("MODIFIED", rig.change(drain="true"))
    assert daemon.cancelled()
    assert 5 <= clock.monotonic() < 10
    assert rig.labels() == {}


@in_virtual_time
async def test_a_withdrawn_drain_leaves_the_object_here(clock: VirtualClock) -> None:
    rig = Rig(clock)
    await rig.event("ADDED", rig.secret())
    drained = rig.change(drain="true")
    kept = rig.change(drain=None)
    await rig.event("MODIFIED", drained)
    assert rig.labels() == {RING.shard: "shard-1"}
    await rig.event("MODIFIED", kept)
    assert rig.processed == [("ADDED", "mine"), ("MODIFIED", "mine")]


@in_virtual_time
async def test_an_acknowledgement_that_fails_is_tried_again_until_there_is_news(clock: VirtualClock) -> None:
    rig = Rig(clock)
    drained = rig.secret()
    drained = rig.change(drain="true")
    rig.api.fault = Fault.REFUSED
    giving = asyncio.create_task(rig.event("MODIFIED", drained, stream_pressure=asyncio.Event()))
    await clock.sleep(100)
    assert RING.drain in rig.labels()
    rig.api.fault = Fault.NONE
    await giving
    assert rig.labels() == {}

    other = rig.secret("other")
    other = rig.change("other", drain="true")
    news = asyncio.Event()
    rig.api.fault = Fault.REFUSED
    giving = asyncio.create_task(rig.event("MODIFIED", other, stream_pressure=news))
    await clock.sleep(100)
    news.set()
    await giving
    assert RING.drain in rig.labels("other")


@in_virtual_time
async def test_what_is_not_served_for_a_while_is_given_away_when_it_is_again(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be for good, too; then it is tried and told ever less often."""
    tried: list[float] = []

    def refuse(verb: str, resource: object, old: object, new: dict[str, object]) -> dict[str, object]:
        tried.append(clock.monotonic())
        raise NotServed("404 page not found", status=404)

    rig = Rig(clock)
    rig.secret()
    drained = rig.change(drain="true")
    rig.server.admit = refuse
    giving = asyncio.create_task(rig.event("MODIFIED", drained, stream_pressure=asyncio.Event()))
    await clock.sleep(600)
    assert len(tried) < 30
    assert len(caplog.records) <= 11
    rig.server.admit = lambda verb, resource, old, new: new
    await giving
    assert rig.labels() == {}
    assert clock.monotonic() - tried[-1] <= UNSERVED_SECONDS + 1


@in_virtual_time
async def test_what_is_there_though_its_patch_is_answered_with_404_is_given_away_when_it_may_be_written(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RoleBinding whose Role is gone, to whoever may not bind any."""
    monkeypatch.setattr(absence, "_BINDINGS", (GroupResource("", "secrets"),))

    def refuse(verb: str, resource: object, old: object, new: dict[str, object]) -> dict[str, object]:
        raise NotFound('rolebindings "reader" not found', status=404, reason="NotFound")

    rig = Rig(clock)
    rig.secret()
    drained = rig.change(drain="true")
    rig.server.admit = refuse
    giving = asyncio.create_task(rig.event("MODIFIED", drained, stream_pressure=asyncio.Event()))
    await clock.sleep(30)
    assert not giving.done()
    rig.server.admit = lambda verb, resource, old, new: new
    await giving
    assert rig.labels() == {}


@in_virtual_time
async def test_an_object_that_another_shard_has_handled_is_resumed_once(clock: VirtualClock) -> None:
    rig = Rig(clock)
    await rig.event("ADDED", rig.secret("new"))
    handed_over = rig.secret("old", annotations=HANDLED)
    await rig.event("ADDED", handed_over)
    await rig.event("MODIFIED", handed_over)
    assert rig.processed == [("ADDED", "new"), (None, "old"), ("MODIFIED", "old")]

    drained = rig.change("old", drain="true")
    await rig.event("MODIFIED", drained)
    back = rig.change("old", shard="shard-1")
    await rig.event("MODIFIED", back)
    assert rig.processed[3:] == [(None, "old")]


@in_virtual_time
async def test_the_end_of_an_object_is_told_but_not_that_it_went_away(clock: VirtualClock) -> None:
    rig = Rig(clock)
    mine, stolen = rig.secret(), rig.secret("stolen")
    await rig.event("ADDED", mine)
    await rig.event("ADDED", stolen)
    daemon = await rig.daemon(stolen, lasts=1000.0)
    rig.change("stolen", shard="shard-2")
    await rig.event("DELETED", stolen)
    await asyncio.wait([daemon])
    assert daemon.cancelled()
    rig.server.delete(SECRETS, "mine", "default")
    await rig.event("DELETED", mine)
    assert rig.processed == [("ADDED", "mine"), ("ADDED", "stolen"), ("DELETED", "mine")]


@in_virtual_time
async def test_controlled_objects_are_never_given_away(clock: VirtualClock) -> None:
    rig = Rig(clock)
    child = rig.secret("child")
    child["metadata"]["labels"][RING.drain] = "true"
    await rig.event("ADDED", child, CHILDREN)
    assert rig.processed == [("ADDED", "child")]
    assert rig.api.writes == []
