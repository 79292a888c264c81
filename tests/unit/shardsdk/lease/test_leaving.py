"""How a shard's Lease says that its process is about to leave, and in the end whether it has failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec
import pytest

from sharder.core.liveness import History, follow
from shardsdk.lease.steps import Phase, Read, Write
from shardsdk.protocol.labels import ENDED_ANNOTATION, LEAVING_ANNOTATION
from shardsdk.protocol.leases import Lease, render_failure
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.keeper_driver import CLAIM, Driver
from tests.lease_rig import Rig

SAID_AT: Final = "2030-01-01T00:00:00.000000Z"


def said(renew_time: str, **annotations: str) -> Lease:
    names = {"leaving": LEAVING_ANNOTATION, "ended": ENDED_ANNOTATION}
    metadata = {"name": "a", "annotations": {names[each]: text for each, text in annotations.items()}}
    return msgspec.convert({"metadata": metadata, "spec": {"holderIdentity": "a", "renewTime": renew_time}}, Lease)


def test_it_counts_only_with_the_write_that_it_came_with() -> None:
    """A process that knows nothing of it, as any in Go, renews the lease and leaves the annotations there."""
    later = "2030-01-01T00:00:02.000000Z"
    assert said(SAID_AT, leaving=SAID_AT).leaving
    assert said(SAID_AT, ended=render_failure(SAID_AT)).ended_in_failure
    assert not said(later, leaving=SAID_AT).leaving
    assert not said(later, ended=render_failure(SAID_AT)).ended_in_failure
    for lease in (said(SAID_AT), said(SAID_AT, leaving="true", ended="failed"), said("", leaving=SAID_AT, ended="")):
        assert (lease.leaving, lease.ended_in_failure) == (False, False)


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("grace_seconds", [0, 60])
def test_a_keeper_says_it_at_once_with_each_renewal_and_never_in_leaving(failed: bool, grace_seconds: int) -> None:
    driver = Driver().acquire()
    driver.keeper.tell_leaving(driver.at())
    for _ in range(3):
        assert isinstance(driver.step(), Write)
        assert (driver.lease.leaving, driver.lease.ended_in_failure) == (True, False)
        driver.due()
    driver.keeper.leave(driver.at(), grace_seconds=grace_seconds, failed=failed)
    driver.steps_until(Phase.LEFT, 1)
    assert (driver.lease.leaving, driver.lease.ended_in_failure) == (False, failed)
    assert LEAVING_ANNOTATION not in (driver.lease.metadata.annotations or {})


def test_a_renewal_that_was_under_way_does_not_keep_it_from_being_said() -> None:
    driver = Driver().acquire().due()
    renewal = driver.next()
    driver.now += 0.5
    driver.keeper.tell_leaving(driver.at())
    driver.do(renewal)
    renewed, asked = driver.lease, driver.now
    assert isinstance(driver.step(), Write)
    assert (renewed.leaving, driver.lease.leaving) == (False, True)
    assert driver.now == asked


def test_the_next_process_takes_off_what_the_last_one_said() -> None:
    driver = Driver().acquire()
    driver.keeper.tell_leaving(driver.at())
    driver.keeper.leave(driver.at(), failed=True)
    driver.steps_until(Phase.LEFT, 1)
    assert driver.lease.ended_in_failure
    follower = Driver(server=driver.server)
    follower.now = driver.now + 1
    follower.acquire()
    assert not {LEAVING_ANNOTATION, ENDED_ANNOTATION} & set(follower.lease.metadata.annotations or {})


def test_an_end_with_a_restart_grace_is_no_crash_to_who_has_missed_it() -> None:
    driver = Driver().acquire()
    before = driver.lease
    driver.keeper.leave(driver.at(), grace_seconds=60)
    driver.steps_until(Phase.LEFT, 1)
    follower = Driver(replace(CLAIM, instance="uid-2"), driver.server)
    follower.now = driver.now + 1
    follower.acquire()
    assert not follow(History(), before, 10, follower.lease, 12).crashed_at


def test_who_seeks_the_lease_says_nothing_at_all() -> None:
    driver = Driver()
    driver.keeper.tell_leaving(driver.at())
    assert isinstance(driver.step(), Read)
    driver.keeper.leave(driver.at())
    driver.steps_until(Phase.LEFT, 1)
    assert driver.lease_or_none is None


@in_virtual_time
async def test_a_body_that_raises_has_failed(clock: VirtualClock) -> None:
    rig, told = Rig(clock), list[bool]()

    async def body() -> None:
        async with rig.shard() as lease:
            lease.settle_first(lambda: clock.sleep(1))
            rig.server.listeners.append(lambda change: told.append(msgspec.convert(change.new, Lease).leaving))
            raise RuntimeError("it has failed")

    with pytest.raises(RuntimeError, match="it has failed"):
        await body()
    assert told == [False], "nothing runs any more: it just releases"
    left = rig.lease()
    assert left is not None
    assert (left.holder, left.ended_in_failure) == ("", True)


@in_virtual_time
async def test_a_loop_of_ones_own_says_it_itself(clock: VirtualClock) -> None:
    rig = Rig(clock)
    async with rig.shard() as lease:
        lease.tell_leaving()
        await clock.sleep(0.1)
        said_so = rig.lease()
        assert said_so is not None
        assert said_so.leaving
        assert rig.holder() == lease.name
    assert rig.holder() == ""


@pytest.mark.parametrize("failed", [False, True])
@in_virtual_time
async def test_nothing_is_taken_from_whose_next_process_is_waited_for(clock: VirtualClock, failed: bool) -> None:
    rig = Rig(clock)
    async with rig.shard(restart_grace_seconds=60) as lease:
        lease.tell_leaving()
        if failed:
            lease.tell_failed()
        for _ in range(20):
            await clock.sleep(0.5)
            said_so = rig.lease()
            assert said_so is not None
            assert not said_so.leaving
    left = rig.lease()
    assert left is not None
    assert (left.holder, left.ended_in_failure) == (lease.name, failed)
