"""Which Leases count as those of an operator's other form at work, and for how long."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from shardsdk.process.changeover import LOOK_SECONDS, OtherForm
from shardsdk.protocol.labels import INSTANCE_ANNOTATION, LEASE_RING_LABEL, SHARDER_HOLDER
from shardsdk.protocol.leases import render_instance
from shardsdk.protocol.objects import LEASES
from shardsdk.rbac import Right
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unsharded_rig import Replica

DURATION: Final = 60
RENEWED: Final = "2026-01-01T00:00:00.000000Z"


@dataclass
class Stage:
    """A Lease, and who waits for it."""

    clock: VirtualClock
    elected: bool = False
    server: MemoryServer = field(default_factory=MemoryServer)

    def __post_init__(self) -> None:
        self.name = "pages" if self.elected else "one"
        self.replica = Replica(self.clock, self.server, 1)
        self.api = self.replica.api()

    def lease(self, holder: str, *, duration: int = DURATION, **metadata: Any) -> None:
        labels = {} if self.elected else {LEASE_RING_LABEL: "pages"}
        metadata = {"name": self.name, "namespace": "default", "labels": labels, **metadata}
        spec = {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": RENEWED}
        self.server.create(LEASES, {"metadata": metadata, "spec": spec})

    def held(self) -> tuple[str, int]:
        spec = self.server.get(LEASES, self.name, "default")["spec"]
        return spec["holderIdentity"], spec["leaseDurationSeconds"]

    def renew(self, at: str) -> None:
        self.server.patch(LEASES, self.name, "default", {"spec": {"renewTime": at}})

    def waiting(self) -> asyncio.Task[Any]:
        form = OtherForm("pages", elected=self.elected)
        return asyncio.create_task(form.wait_until_gone(self.replica.world(), "default", self.api))

    async def waited(self) -> float:
        began = self.clock.monotonic()
        await self.waiting()
        return self.clock.monotonic() - began


@pytest.mark.parametrize("elected", [False, True])
@in_virtual_time
async def test_a_lease_that_nobody_renews_is_waited_for_until_it_has_run_out(
    clock: VirtualClock, elected: bool
) -> None:
    stage = Stage(clock, elected)
    stage.lease("host_1" if elected else "one")
    assert DURATION <= await stage.waited() <= DURATION + 2 * LOOK_SECONDS
    # A shard's is the sharder's affair, which moves objects by it.
    assert stage.held() == (("", 1) if elected else ("one", DURATION))


@in_virtual_time
async def test_a_lease_that_was_emptied_by_hand_is_waited_for_once(clock: VirtualClock) -> None:
    stage = Stage(clock, elected=True)
    stage.lease("")
    assert await stage.waited() >= DURATION
    assert await stage.waited() < 1


@in_virtual_time
async def test_a_leader_that_renews_after_all_keeps_its_lease(clock: VirtualClock) -> None:
    stage = Stage(clock, elected=True)
    stage.lease("host_1")

    def renew_first(right: Right) -> None:
        if right.verb == "patch":
            stage.renew("2026-01-01T00:01:00.000000Z")

    stage.api.on_request = renew_first
    await stage.waited()
    assert stage.held() == ("host_1", DURATION)


@pytest.mark.parametrize("elected", [False, True])
@in_virtual_time
async def test_a_lease_that_was_deleted_is_waited_for_as_long(clock: VirtualClock, elected: bool) -> None:
    stage = Stage(clock, elected)
    stage.lease("host_1" if elected else "one")
    waiting = stage.waiting()
    await clock.sleep(5)
    stage.server.delete(LEASES, stage.name, "default")
    await clock.sleep(DURATION - 6)
    assert not waiting.done()
    await waiting


@in_virtual_time
async def test_a_lease_of_a_shard_that_is_not_at_work_is_not_waited_for(clock: VirtualClock) -> None:
    taken, left, released = Stage(clock), Stage(clock), Stage(clock)
    taken.lease(SHARDER_HOLDER)
    left.lease("one", annotations={INSTANCE_ANNOTATION: render_instance("", RENEWED)})
    released.lease("", duration=1)
    assert max([await stage.waited() for stage in (taken, left, released)]) < 1


@in_virtual_time
async def test_the_lease_of_the_election_is_no_shards_for_a_label_that_was_left_on_it(clock: VirtualClock) -> None:
    labels = {LEASE_RING_LABEL: "pages"}
    leader, shard = Stage(clock), Stage(clock, elected=True)
    leader.lease("host_1", name="pages", labels=labels)
    assert await leader.waited() < 1, "it would wait for itself"
    shard.lease("host_1", labels=labels)
    assert await shard.waited() >= DURATION
