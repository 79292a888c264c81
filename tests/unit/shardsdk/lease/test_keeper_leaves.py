"""What a keeper that leaves makes of a write that holds the lease and was not answered."""

from __future__ import annotations

import pytest

from shardsdk.lease.steps import Left, Phase, Read, Wait, Write
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.objects import LEASES
from tests.keeper_driver import Driver, lease_of

REQUEST_SECONDS = LeaseTimings().request_timeout


def creating() -> tuple[Driver, Write]:
    """A keeper whose first write is under way."""
    driver = Driver()
    assert isinstance(driver.step(), Read)
    create = driver.next()
    assert isinstance(create, Write)
    assert create.create
    return driver, create


def wait(driver: Driver) -> float:
    action = driver.next()
    assert isinstance(action, Wait)
    driver.now += action.seconds
    return action.seconds


def test_without_a_write_there_is_nothing_to_leave_and_nothing_is_asked() -> None:
    """Else whoever ends before an API server has answered would wait for that answer."""
    unanswered, earlier = Driver(), Driver(server=lease_of())
    assert isinstance(unanswered.next(), Read)
    assert isinstance(earlier.step(), Read)
    for driver in (unanswered, earlier):
        driver.keeper.leave(driver.at())
        assert driver.next() == Left(clean=True)


def test_a_creation_that_is_executed_after_it_was_told_to_leave_is_undone() -> None:
    driver, create = creating()
    driver.now += 1
    driver.keeper.leave(driver.at())
    assert isinstance(driver.step(), Read)
    assert wait(driver) == pytest.approx(REQUEST_SECONDS - 1), "nobody knows before what becomes of it"
    driver.execute(create)
    assert [type(driver.step()) for _ in range(3)] == [Read, Write, Left]
    assert driver.next() == Left(clean=True)
    assert driver.lease.holder == ""


def test_one_that_was_not_executed_by_then_never_will_be() -> None:
    driver, _ = creating()
    driver.keeper.leave(driver.at())
    assert driver.steps_until(Phase.LEFT, 60) == pytest.approx(REQUEST_SECONDS)
    assert driver.next() == Left(clean=True)


def test_so_is_one_that_has_failed_before() -> None:
    driver, create = creating()
    driver.now += 1
    driver.keeper.failed(driver.at(), "the connection broke")
    driver.keeper.leave(driver.at())
    driver.step()
    wait(driver)
    driver.execute(create)
    driver.steps_until(Phase.LEFT, 0)
    assert driver.lease.holder == ""


def test_nor_does_it_say_that_it_has_left_when_nobody_can_tell() -> None:
    driver, _ = creating()
    driver.keeper.leave(driver.at())
    began = driver.now
    while not isinstance(action := driver.next(), Left):
        if isinstance(action, Wait):
            driver.now += action.seconds
        else:
            driver.now += action.timeout_seconds
            driver.keeper.failed(driver.at(), "no answer")
    assert not action.clean
    assert driver.now - began == pytest.approx(2 * REQUEST_SECONDS)


def test_a_free_lease_that_may_still_be_taken_in_our_name_is_watched_as_well() -> None:
    driver = Driver(server=lease_of(instance=None, holderIdentity="", leaseDurationSeconds=1))
    driver.step()
    hold = driver.next()
    assert isinstance(hold, Write)
    driver.keeper.leave(driver.at())
    driver.step()
    wait(driver)
    driver.execute(hold)
    driver.steps_until(Phase.LEFT, 0)
    assert driver.lease.holder == ""


@pytest.mark.parametrize("how", ["refused", "rejected"])
def test_a_write_that_was_answered_is_not_waited_for(how: str) -> None:
    driver, _ = creating()
    if how == "refused":
        driver.keeper.refused(driver.at(), "it exists already")
    else:
        driver.keeper.failed(driver.at(), "forbidden", rejected=True)
    driver.keeper.leave(driver.at())
    assert driver.steps_until(Phase.LEFT, 0) == 0
    assert driver.next() == Left(clean=True)


def test_one_that_was_rejected_leaves_the_one_before_it_in_doubt() -> None:
    driver, create = creating()
    driver.now += 1
    driver.keeper.failed(driver.at(), "the connection broke")
    while not isinstance(driver.next(), Write):
        driver.step()
        driver.now += 0.1
    driver.keeper.failed(driver.at(), "forbidden", rejected=True)
    driver.keeper.leave(driver.at())
    driver.step()
    wait(driver)
    driver.execute(create)
    driver.steps_until(Phase.LEFT, 0)
    assert driver.lease.holder == ""


def test_the_lease_of_another_is_left_alone() -> None:
    driver, _ = creating()
    metadata = {"name": driver.claim.name, "namespace": driver.claim.namespace}
    driver.server.create(LEASES, {"metadata": metadata, "spec": {"holderIdentity": SHARDER_HOLDER}})
    driver.keeper.leave(driver.at())
    driver.steps_until(Phase.LEFT, 60)
    assert driver.next() == Left(clean=True)
    assert driver.lease.holder == SHARDER_HOLDER


def test_a_lease_is_given_back_within_its_hold_however_long_an_answer_asks_to_wait() -> None:
    driver = Driver().acquire()
    driver.keeper.leave(driver.at())
    assert isinstance(driver.next(), Write)
    driver.keeper.failed(driver.at(), "no backend", retry_after_seconds=3600)
    driver.steps_until(Phase.LEFT, 60)
    assert driver.next() == Left(clean=True)
    assert driver.lease.holder == ""
