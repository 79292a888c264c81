"""What the lease says of ranges of hashes: at once, with every renewal, and nothing when it is acquired or left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardsdk.lease.claim import render_create, render_grace, render_hold, render_release
from shardsdk.lease.keeper import Keeper
from shardsdk.lease.steps import Moment, Phase, Read, Wait, Write
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import INSTANCE_ANNOTATION, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.ranges import HELD_RANGES_ANNOTATION, NOWHERE, SPACE, HashRanges, render_held
from tests.keeper_driver import CLAIM, EPOCH, Driver, lease_of

LOW, HIGH = HashRanges.of((0, SPACE // 2)), HashRanges.of((SPACE // 2, SPACE))


def said(driver: Driver) -> str | None:
    """The ranges as the API server has them, of a write that has said so of itself; `None`: it says nothing."""
    text = (driver.lease.metadata.annotations or {}).get(HELD_RANGES_ANNOTATION)
    if text is None:
        return None
    ranges, _, said_at = text.partition("@")
    assert said_at == driver.lease.spec.renew_time
    return ranges


def holding(ranges: HashRanges = LOW) -> Driver:
    """A process that holds its lease, which says that it holds these ranges."""
    driver = Driver().acquire()
    driver.keeper.hold_ranges(ranges, 1)
    driver.step()
    assert said(driver) == str(ranges)
    return driver


def test_ranges_are_written_at_once_under_the_version_last_seen() -> None:
    driver = Driver().acquire()
    version = driver.lease.metadata.resource_version
    assert isinstance(driver.next(), Wait)
    driver.keeper.hold_ranges(LOW, 1)
    write = driver.next()
    assert isinstance(write, Write)
    assert write.body["metadata"]["resourceVersion"] == version
    says = render_held(LOW, write.body["spec"]["renewTime"])
    assert write.body["metadata"]["annotations"][HELD_RANGES_ANNOTATION] == says
    assert driver.keeper.held.confirmed == 0
    driver.keeper.wrote(driver_lease(driver, write), driver.at())
    assert driver.keeper.held.confirmed == 1
    assert isinstance(driver.next(), Wait)


def driver_lease(driver: Driver, request: Any) -> Lease:
    lease = driver.execute(request)
    assert lease is not None
    return lease


def test_it_counts_as_a_renewal() -> None:
    driver = Driver().acquire()
    driver.now += 1
    driver.keeper.hold_ranges(LOW, 1)
    driver.step()
    assert driver.keeper.deadlines == LeaseTimings().after(driver.now)


class StoppedWall(Driver):
    """A process whose wall clock stands still."""

    def at(self) -> Moment:
        return super().at()._replace(wall=EPOCH)


def test_it_is_none_where_others_read_the_renew_time_that_they_read_before() -> None:
    """Nobody counts the lease anew: it may be taken by who saw the write before, whatever is held since."""
    driver = StoppedWall().acquire()
    ends = driver.keeper.deadlines
    driver.now += 3
    driver.keeper.hold_ranges(LOW, 1)
    driver.step()
    assert said(driver) == str(LOW)
    assert driver.keeper.held.confirmed == 1, "what is held is there, for as long as the lease is"
    assert driver.keeper.deadlines == ends
    assert isinstance(driver.next(), Wait)
    driver.keeper.tell_counts("85944171f73967e8=40")
    assert driver.steps_until(Phase.LOST, LeaseTimings().renew_deadline) > 0
    assert "wall clock" in str(driver.keeper.loss)


def test_renewals_keep_it_and_put_it_back() -> None:
    driver = holding()
    driver.due().step()
    assert said(driver) == str(LOW)
    driver.meddle({"metadata": {"annotations": {HELD_RANGES_ANNOTATION: str(HIGH)}}})
    while not isinstance(driver.due().step(), Write) or driver.lease.held_ranges != LOW:
        pass
    assert said(driver) == str(LOW)
    assert driver.keeper.phase is Phase.HOLDING


def test_what_changes_while_a_write_is_under_way_is_written_right_after_it_and_confirmed_by_its_own_write() -> None:
    driver = holding()
    renewal = driver.due().next()
    driver.keeper.hold_ranges(HIGH, 2)
    driver.keeper.wrote(driver_lease(driver, renewal), driver.at())
    assert (said(driver), driver.keeper.held.confirmed) == (str(LOW), 1)
    assert isinstance(driver.step(), Write)
    assert (said(driver), driver.keeper.held.confirmed) == (str(HIGH), 2)


def test_a_write_without_an_answer_confirms_nothing() -> None:
    driver = Driver().acquire()
    driver.keeper.hold_ranges(LOW, 1)
    driver.execute(driver.next())
    driver.keeper.failed(driver.at(), "timeout")
    assert (said(driver), driver.keeper.held.confirmed) == (str(LOW), 0)
    driver.due()
    assert [type(driver.step()) for _ in range(2)] == [Read, Write]
    assert driver.keeper.held.confirmed == 1


def test_a_write_that_was_refused_is_made_again_at_once() -> None:
    driver = Driver().acquire()
    driver.meddle({"metadata": {"labels": {"alpha.sharding.timebertt.dev/state": "ready"}}})
    driver.keeper.hold_ranges(LOW, 1)
    assert [type(driver.step()) for _ in range(3)] == [Write, Read, Write]
    assert (said(driver), driver.keeper.held.confirmed) == (str(LOW), 1)


def test_a_lease_that_cannot_be_read_is_not_asked_for_without_pause() -> None:
    driver = Driver().acquire()
    driver.keeper.hold_ranges(LOW, 1)
    driver.next()
    driver.keeper.refused(driver.at(), "conflict")
    assert isinstance(driver.next(), Read)
    driver.keeper.hold_ranges(HIGH, 2)
    driver.keeper.failed(driver.at(), "timeout")
    assert isinstance(driver.next(), Wait)


def test_an_answer_that_says_something_else_confirms_nothing() -> None:
    """Whoever admits leases has changed it: others do not see what this shard holds."""
    driver = Driver().acquire()
    driver.keeper.hold_ranges(LOW, 1)
    driver.execute(driver.next())
    driver.meddle({"metadata": {"annotations": {HELD_RANGES_ANNOTATION: None}}})
    driver.keeper.wrote(driver.lease, driver.at())
    assert driver.keeper.held.confirmed == 0


def test_that_none_are_held_is_said_too() -> None:
    """By that the sharder knows a shard that takes ranges from one that knows labels alone."""
    driver = holding()
    driver.keeper.hold_ranges(NOWHERE, 2)
    driver.step()
    assert (said(driver), driver.keeper.held.confirmed) == ("", 2)


def test_numbers_must_grow() -> None:
    driver = holding()
    with pytest.raises(ValueError, match="numbered 1 after 1"):
        driver.keeper.hold_ranges(HIGH, 1)


@pytest.mark.parametrize("holder", ["", "shard-a"], ids=["released", "left by a crash"])
def test_acquiring_the_lease_empties_it_in_the_same_write(holder: str) -> None:
    server = lease_of(holderIdentity=holder, leaseDurationSeconds=1 if not holder else 15)
    driver = Driver(server=server)
    driver.meddle({"metadata": {"annotations": {HELD_RANGES_ANNOTATION: str(LOW)}}})
    driver.acquire()
    assert driver.lease.instance == "uid-1"
    assert said(driver) is None


def test_nothing_is_held_by_a_process_that_does_not_hold_its_lease() -> None:
    driver = Driver()
    driver.keeper.hold_ranges(LOW, 1)
    driver.acquire()
    assert said(driver) is None
    driver.keeper.hold_ranges(HIGH, 2)
    driver.meddle({"spec": {"holderIdentity": SHARDER_HOLDER}, "metadata": {"annotations": None}})
    for _ in range(3):
        driver.step()
    assert driver.keeper.phase is Phase.LOST
    driver.keeper.hold_ranges(LOW, 3)
    driver.keeper.leave(driver.at())
    driver.step()
    assert said(driver) is None


@pytest.mark.parametrize("grace_seconds", [0, 30])
def test_leaving_the_lease_takes_it_off(grace_seconds: int) -> None:
    driver = holding()
    driver.keeper.leave(driver.at(), grace_seconds=grace_seconds)
    driver.steps_until(Phase.LEFT, 0)
    assert said(driver) is None
    assert driver.lease.held_by_shard == (grace_seconds > 0)


def test_a_lease_that_was_deleted_by_hand_is_put_back_with_its_ranges() -> None:
    driver = holding().due()
    driver.delete()
    while not isinstance(driver.step(), Wait):
        pass
    assert driver.keeper.phase is Phase.HOLDING
    assert said(driver) == str(LOW)


def test_without_ranges_no_write_names_them() -> None:
    """Rings by labels: their leases are written as ever."""
    lease = Driver().acquire().lease
    assert lease.instance == "uid-1"
    bodies = [
        render_create(CLAIM, EPOCH),
        render_hold(CLAIM, lease, EPOCH, ()),
        render_release(CLAIM, lease, EPOCH),
        render_grace(CLAIM, lease, EPOCH, 30),
    ]
    assert not [body for body in bodies if HELD_RANGES_ANNOTATION in body["metadata"].get("annotations", {})]
    assert all(INSTANCE_ANNOTATION in body["metadata"]["annotations"] for body in bodies)


def test_a_candidate_for_a_lead_writes_no_annotations_at_all() -> None:
    candidate = replace(CLAIM, instance=None, ring=None)
    keeper = Keeper(candidate, LeaseTimings())
    driver = Driver(candidate)
    driver.keeper = keeper
    driver.acquire()
    assert not driver.lease.metadata.annotations
    assert driver.lease.held_ranges is None
