"""What a keeper learns from a read of a renewal that nobody answered."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shardsdk.lease.steps import LossKind, Moment, Phase, Read, Stop, Write
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import INSTANCE_ANNOTATION, SHARDER_HOLDER
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memory import MemoryServer
from tests.keeper_driver import EPOCH, Driver

TIMINGS = LeaseTimings()


class StandingStill(Driver):
    """A process whose wall clock stands still from some moment on."""

    stands_at: float | None = None

    def at(self) -> Moment:
        if self.stands_at is None:
            return super().at()
        return super().at()._replace(wall=EPOCH + timedelta(seconds=self.stands_at))


def unanswered(driver: Driver, *, executed: bool = True) -> float:
    """Have the next renewal end without an answer; when it was sent."""
    renewal = driver.due().next()
    assert isinstance(renewal, Write)
    sent = driver.now
    if executed:
        driver.execute(renewal)
    driver.now += renewal.timeout_seconds
    driver.keeper.failed(driver.at(), "no answer")
    return sent


def test_one_that_was_executed_counts_from_when_it_was_sent() -> None:
    driver = Driver().acquire()
    sent = unanswered(driver)
    assert isinstance(driver.step(seconds=0.5), Read)
    assert driver.keeper.deadlines == TIMINGS.after(sent)
    assert isinstance(driver.next(), Write), "the renewal that is due is made nevertheless"


def test_one_that_was_not_executed_extends_nothing() -> None:
    driver = Driver().acquire()
    before = driver.keeper.deadlines
    unanswered(driver, executed=False)
    assert isinstance(driver.step(seconds=0.5), Read)
    assert driver.keeper.deadlines == before


def test_what_the_clock_had_missed_by_then_is_told_with_it() -> None:
    driver = Driver().acquire()
    driver.missed = 1.0
    sent = unanswered(driver)
    driver.missed = 3.0
    driver.step()
    assert driver.keeper.confirmed == (sent, 1.0)


def test_a_read_that_comes_after_the_deadline_revives_nothing() -> None:
    driver = Driver().acquire()
    unanswered(driver)
    read = driver.next()
    assert isinstance(read, Read)
    before = driver.keeper.deadlines
    assert before is not None
    driver.now = before.step_down_at
    driver.keeper.saw(driver.lease, driver.at())
    assert driver.keeper.deadlines == before
    stop = driver.next()
    assert isinstance(stop, Stop)
    assert stop.loss.kind is LossKind.DEADLINE


def test_a_wall_clock_that_stands_still_makes_a_renewal_no_later() -> None:
    """Nobody sees a difference between two renewals of one renewTime, so both count from the first."""
    driver = StandingStill()
    driver.acquire()
    driver.due()
    driver.stands_at = driver.now
    first = unanswered(driver)
    driver.step()
    assert isinstance(driver.next(), Write)
    driver.now += 1
    driver.keeper.failed(driver.at(), "the connection broke", broken=True)
    assert isinstance(driver.due().step(), Read)
    assert driver.keeper.deadlines == TIMINGS.after(first)


@pytest.mark.parametrize("latency", [0.1, 1.0, 1.9])
def test_one_of_them_does_not_cost_the_lease_however_slow_the_others_are(latency: float) -> None:
    """Up to a fifth of the deadline; a second write is under way when the first would have cost the lease."""
    driver = Driver().acquire()
    unanswered(driver)
    end = driver.now + 3 * TIMINGS.lease_duration
    while driver.now < end:
        action = driver.next()
        if isinstance(action, Read | Write):
            driver.do(action, seconds=latency / 2)
        else:
            driver.now += action.seconds
    assert driver.keeper.phase is Phase.HOLDING


def test_a_renewal_in_a_store_that_was_set_back_revives_nothing() -> None:
    """The store came back without the Lease; one that was made anew, and nobody answered, is older than the last."""
    driver = Driver()
    for number in range(30):
        driver.server.create(LEASES, {"metadata": {"name": f"other-{number}", "namespace": "default"}, "spec": {}})
    driver.acquire().due()
    driver.server = MemoryServer()
    assert isinstance(driver.step(), Write)
    assert isinstance(driver.step(), Read)
    made = driver.next()
    assert isinstance(made, Write)
    assert made.create
    driver.execute(made)
    driver.keeper.failed(driver.at(), "the connection broke", broken=True)
    before = driver.keeper.confirmed
    assert isinstance(driver.due().step(), Read)
    assert driver.keeper.phase is Phase.LOST
    assert driver.keeper.confirmed == before


@pytest.mark.parametrize("whose", ["uid-1", "uid-0"], ids=["its own", "an earlier process's"])
def test_an_older_copy_of_its_lease_is_told_as_one(whose: str) -> None:
    driver, before = Driver().acquire().due(), "2029-01-01T00:00:00.000000Z"
    said = {INSTANCE_ANNOTATION: f"{whose}@{before}"}
    driver.meddle({"metadata": {"annotations": said}, "spec": {"renewTime": before}})
    assert [type(driver.step()) for _ in range(3)] == [Write, Read, Stop]
    assert driver.keeper.loss is not None
    assert driver.keeper.loss.kind is LossKind.TAKEN
    assert (
        f"was set back to an older copy of itself (renewTime {before}), as by a restore" in driver.keeper.loss.message
    )


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("meanwhile", ["nobody", "the sharder"])
def test_a_renewal_of_another_lease_under_the_same_version_is_no_hold(meanwhile: str, answered: bool) -> None:
    """In a store that was set back versions come up anew: one of what the sharder has made of it, say."""
    driver = Driver().acquire().due()
    if meanwhile == "the sharder":
        driver.meddle({"spec": {"holderIdentity": SHARDER_HOLDER, "leaseTransitions": 1}})
        driver.meddle({"spec": {"holderIdentity": ""}})
    renewal = driver.next()
    assert isinstance(renewal, Write)
    said = {**renewal.body["metadata"], "resourceVersion": driver.lease.metadata.resource_version}
    body = {**renewal.body, "metadata": said}
    if answered:
        driver.do(Write(body, renewal.create, renewal.timeout_seconds))
    else:
        driver.meddle(body)
        driver.keeper.failed(driver.at(), "the connection broke", broken=True)
        assert isinstance(driver.due().step(), Read)
    assert (driver.keeper.phase is Phase.LOST) == (meanwhile == "the sharder")
    if driver.keeper.loss is not None:
        assert "is not what our last renewal made: etcd came back from a backup" in driver.keeper.loss.message
