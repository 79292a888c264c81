"""What comes while the lease is merely doubted, as after the machine stood still, waits: kopf hands it in only once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardsdk.errors import ShardingError
from shardsdk.kube.doubts import FenceDoubted
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import RING, SECRETS, Hold
from tests.unit.shardsdk.contrib.test_kopf_gate import CHILDREN, MAIN, Rig


class Doubted(Hold):
    """One whose end the clock may have missed."""

    doubted = True


class DoubtedRig(Rig):
    """Its lease is doubted until the test says otherwise."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.lease.fence = self.api.fence = Doubted(0.0)

    def confirm(self) -> None:
        self.lease.fence.seconds = 10.0

    def arrive(self, body: dict[str, Any], resource: Any = MAIN, **more: Any) -> asyncio.Task[None]:
        return asyncio.create_task(self.event("ADDED", body, resource, **more))


def child_of(secret: dict[str, Any]) -> dict[str, Any]:
    meta = secret["metadata"]
    owner = {"apiVersion": "v1", "kind": "Secret", "name": meta["name"], "uid": meta["uid"], "controller": True}
    labels = {RING.shard: "shard-1"}
    metadata = {"name": "child", "namespace": "default", "uid": "c", "resourceVersion": "1", "labels": labels}
    return {"metadata": {**metadata, "ownerReferences": [owner]}}


@in_virtual_time
async def test_it_is_processed_once_the_lease_is_confirmed(clock: VirtualClock) -> None:
    rig = DoubtedRig(clock)
    secret = rig.secret()
    waiting = [rig.arrive(secret), rig.arrive(child_of(secret), CHILDREN)]
    await clock.sleep(5)
    assert rig.processed == []
    rig.confirm()
    await asyncio.gather(*waiting)
    assert rig.processed == [("ADDED", "mine"), ("ADDED", "child")]


@in_virtual_time
async def test_it_is_dropped_when_the_lease_is_lost_after_all(clock: VirtualClock) -> None:
    rig = DoubtedRig(clock)
    waiting = rig.arrive(rig.secret())
    await clock.sleep(5)
    rig.lease.lost.set()
    await waiting
    assert rig.processed == []


@in_virtual_time
async def test_so_does_the_end_of_an_object(clock: VirtualClock) -> None:
    rig = DoubtedRig(clock)
    rig.confirm()
    secret = rig.secret()
    child = child_of(secret)
    await rig.event("ADDED", secret)
    await rig.event("ADDED", child, CHILDREN)
    rig.lease.fence.seconds = 0.0
    told = len(rig.processed)
    rig.server.delete(SECRETS, "mine", "default")
    ends = [asyncio.create_task(rig.event("DELETED", *event)) for event in ((child, CHILDREN), (secret, MAIN))]
    await clock.sleep(5)
    assert rig.processed[told:] == []
    rig.confirm()
    await asyncio.gather(*ends)
    assert sorted(rig.processed[told:]) == [("DELETED", "child"), ("DELETED", "mine")]


@in_virtual_time
async def test_it_gives_way_to_news_of_its_object(clock: VirtualClock) -> None:
    rig, news = DoubtedRig(clock), asyncio.Event()
    waiting = rig.arrive(rig.secret(), stream_pressure=news)
    await clock.sleep(5)
    news.set()
    await waiting
    assert rig.processed == []


@in_virtual_time
async def test_a_child_whose_owner_is_drained_meanwhile_waits_for_it(clock: VirtualClock) -> None:
    rig = DoubtedRig(clock)
    secret = rig.secret()
    child = rig.arrive(child_of(secret), CHILDREN)
    main = rig.arrive(secret)
    await clock.sleep(5)
    drained = rig.change(drain="true")
    rig.busy_seconds = 30.0
    giving = asyncio.create_task(rig.event("MODIFIED", drained))
    await asyncio.sleep(0)
    rig.confirm()
    await asyncio.wait([main, giving])
    assert rig.labels() == {}
    await clock.sleep(5)
    assert rig.processed == []
    child.cancel()


@in_virtual_time
async def test_an_acknowledgement_that_was_not_sent_for_it_is_tried_again(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(clock)
    rig.secret()
    drained = rig.change(drain="true")
    patch, refused = rig.api.patch, list[ShardingError]()

    async def refuse_first(*arguments: Any, **options: Any) -> Any:
        if not refused:
            refused.append(FenceDoubted("the hold on shard-1 has run out"))
            raise refused[0]
        return await patch(*arguments, **options)

    monkeypatch.setattr(rig.api, "patch", refuse_first)
    await rig.event("MODIFIED", drained)
    assert rig.labels() == {}
