"""How the keeper comes to hold a lease."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.lease.claim import render_release
from shardsdk.lease.steps import Phase, Wait
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import (
    FENCED_ANNOTATION,
    INSTANCE_ANNOTATION,
    LEASE_CONTROLLERRING_LABEL,
    LEASE_RING_LABEL,
    SHARDER_HOLDER,
)
from shardsdk.protocol.objects import LEASES
from tests.keeper_driver import CLAIM, EPOCH, Driver, lease_of


class TestAcquiring:
    def test_a_missing_lease_is_created_with_all_that_the_contract_asks_for(self) -> None:
        lease = Driver().acquire().lease
        assert lease.holder == lease.metadata.name == "shard-a"
        assert lease.ring == "example"
        assert lease.instance == "uid-1"
        assert not lease.fenced
        assert lease.spec.lease_duration_seconds == 15
        assert lease.spec.lease_transitions == 0
        assert lease.spec.renew_time == lease.spec.acquire_time == "2030-01-01T00:16:40.000000Z"

    def test_a_fenced_shard_says_so(self) -> None:
        assert Driver(replace(CLAIM, fenced=True)).acquire().lease.fenced

    def test_a_released_lease_is_acquired_at_once(self) -> None:
        driver = Driver(server=lease_of(holderIdentity="", leaseDurationSeconds=1, instance=None)).acquire()
        assert driver.lease.holder == "shard-a"
        assert driver.lease.instance == "uid-1"
        assert driver.lease.spec.lease_transitions == 4

    def test_a_lease_that_has_changed_hands_as_often_as_it_can_say_is_acquired_all_the_same(self) -> None:
        server = lease_of(holderIdentity="", leaseDurationSeconds=1, instance=None, leaseTransitions=2**31 - 1)
        assert Driver(server=server).acquire().lease.spec.lease_transitions == 0

    def test_the_same_instance_goes_on_at_once_and_says_since_when(self) -> None:
        """Else nobody could tell that the process before it has crashed."""
        driver = Driver(server=lease_of()).acquire()
        assert driver.lease.spec.lease_transitions == 3
        assert driver.lease.spec.acquire_time == driver.lease.spec.renew_time

    def test_a_lease_left_in_grace_is_acquired_at_once(self) -> None:
        driver = Driver(server=lease_of(instance="", leaseDurationSeconds=60)).acquire()
        assert driver.lease.instance == "uid-1"
        assert driver.lease.spec.lease_transitions == 4, "the end in order shows to whoever has missed that write"
        assert driver.lease.spec.lease_duration_seconds == 15

    @pytest.mark.parametrize("instance", ["uid-0", None])
    def test_another_process_of_the_same_name_is_waited_for_until_its_lease_has_run_out(
        self, instance: str | None
    ) -> None:
        driver = Driver(server=lease_of(instance=instance))
        assert 15 <= driver.steps_until(Phase.HOLDING, 16) < 15.1

    def test_another_process_of_the_same_name_that_releases_is_succeeded_soon(self) -> None:
        driver = Driver(server=lease_of(instance="uid-0"))
        driver.step()
        driver.meddle(render_release(replace(CLAIM, instance="uid-0"), driver.lease, EPOCH))
        assert driver.steps_until(Phase.HOLDING, 3) <= 2

    def test_the_sharders_hold_is_waited_for_as_long_as_the_lease_says(self) -> None:
        driver = Driver(server=lease_of(holderIdentity=SHARDER_HOLDER, leaseDurationSeconds=30))
        assert 30 <= driver.steps_until(Phase.HOLDING, 31) < 30.1
        assert driver.lease.spec.lease_transitions == 4

    def test_each_renewal_of_another_starts_the_wait_anew(self) -> None:
        driver = Driver(server=lease_of(holderIdentity="other"))
        for second in range(40):
            driver.meddle({"spec": {"renewTime": f"2029-01-01T00:00:{second:02}.000000Z"}})
            driver.now += 1
            driver.step()
        assert driver.keeper.phase is Phase.SEEKING
        assert 14 <= driver.steps_until(Phase.HOLDING, 16) <= 15.1

    def test_a_label_on_anothers_lease_is_no_renewal(self) -> None:
        driver = Driver(server=lease_of(holderIdentity="other"))
        driver.step()
        driver.now += 10
        driver.meddle({"metadata": {"labels": {"alpha.sharding.timebertt.dev/state": "expired"}}})
        assert driver.steps_until(Phase.HOLDING, 5.1) <= 5.1

    def test_time_counts_from_when_the_lease_was_seen_and_not_from_when_it_was_asked_for(self) -> None:
        driver = Driver(server=lease_of(holderIdentity="other"))
        driver.step(seconds=2)
        seen = driver.now
        driver.steps_until(Phase.HOLDING, 20)
        assert driver.now - seen >= 15

    @pytest.mark.parametrize("duration", [None, 0, -5])
    def test_a_held_lease_without_a_usable_duration_lasts_fifteen_seconds(self, duration: int | None) -> None:
        driver = Driver(server=lease_of(holderIdentity="other", leaseDurationSeconds=duration, renewTime=None))
        assert 15 <= driver.steps_until(Phase.HOLDING, 16) < 15.1

    @pytest.mark.parametrize("how", ["deleted", "emptied"])
    def test_a_lease_that_was_seen_held_and_then_deleted_or_emptied_by_hand_counts_as_held(self, how: str) -> None:
        driver = Driver(server=lease_of(holderIdentity=SHARDER_HOLDER, leaseDurationSeconds=30))
        driver.step()
        if how == "deleted":
            driver.delete()
        else:
            driver.meddle({"spec": {"holderIdentity": "", "leaseDurationSeconds": 30}})
        assert 30 <= driver.steps_until(Phase.HOLDING, 31) < 30.1

    def test_a_lease_found_emptied_by_hand_counts_as_held_by_whoever_held_it(self) -> None:
        """Its holder may be at work still: within its hold, which nobody has taken from it."""
        driver = Driver(server=lease_of(holderIdentity="", leaseDurationSeconds=30, instance="uid-0"))
        assert 30 <= driver.steps_until(Phase.HOLDING, 31) < 30.1

    def test_a_lease_emptied_by_hand_after_a_renewal_that_was_not_seen_counts_as_held_anew(self) -> None:
        """Whoever waits may not have been able to read it for a while."""
        driver = Driver(server=lease_of(instance="uid-0"))
        driver.step()
        driver.now += 14
        driver.meddle({"spec": {"renewTime": "2030-01-01T00:16:54.000000Z"}})
        driver.meddle({"spec": {"holderIdentity": ""}})
        assert 15 <= driver.steps_until(Phase.HOLDING, 17) < 17

    def test_a_lease_that_nobody_ever_held_is_acquired_at_once(self) -> None:
        server = lease_of(
            holderIdentity=None,
            leaseDurationSeconds=None,
            renewTime=None,
            acquireTime=None,
            leaseTransitions=None,
            instance=None,
        )
        assert Driver(server=server).acquire().lease.holder == "shard-a"

    def test_who_holds_the_lease_is_told(self) -> None:
        driver = Driver(server=lease_of(holderIdentity="other", instance="uid-9"))
        driver.step()
        wait = driver.next()
        assert isinstance(wait, Wait)
        assert wait.why == "held by other (instance uid-9)"
        assert 0 < wait.seconds <= 2

    def test_what_others_wrote_on_the_lease_stays(self) -> None:
        server = lease_of(holderIdentity="", leaseDurationSeconds=1)
        server.patch(
            LEASES, "shard-a", "default", {"metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}}
        )
        lease = Driver(server=server).acquire().lease
        assert lease.metadata.labels == {"team": "x", LEASE_RING_LABEL: "example"}
        assert lease.metadata.annotations == {"note": "y", INSTANCE_ANNOTATION: f"uid-1@{lease.spec.renew_time}"}

    @pytest.mark.parametrize("ring", [None, "other"])
    def test_the_ring_label_of_a_free_lease_is_put_right(self, ring: str | None) -> None:
        assert (
            Driver(server=lease_of(holderIdentity="", leaseDurationSeconds=1, ring=ring)).acquire().lease.ring
            == "example"
        )

    def test_one_process_cannot_be_a_shard_of_two_rings_under_one_name(self) -> None:
        said = r"this process as a shard of ring 'other'.*names of their own \(`--shard example-shard-a`\)"
        with pytest.raises(ConfigurationError, match=said):
            Driver(server=lease_of(ring="other")).acquire()

    @pytest.mark.parametrize(
        "said",
        [
            {"instance": "uid-0"},
            {"instance": None},
            {"instance": "", "leaseDurationSeconds": 60},
            {"holderIdentity": "", "instance": None},
        ],
        ids=["another process's", "of a Go shard", "left in grace", "emptied by hand"],
    )
    def test_the_lease_of_another_rings_shard_is_left_to_the_sharder(self, said: dict[str, Any]) -> None:
        """What that shard had can only be moved under this Lease, by the ring that it names."""
        with pytest.raises(ConfigurationError, match=r"shard of ring 'other'.*if the other shard is gone for good"):
            Driver(server=lease_of(ring="other", **said)).steps_until(Phase.HOLDING, 60)

    def test_one_that_the_sharder_holds_for_another_ring_is_waited_for(self) -> None:
        """It moves what that ring's shard had and gives it back, or the ring is gone, and nobody renews it."""
        driver = Driver(server=lease_of(ring="other", holderIdentity=SHARDER_HOLDER, instance=None))
        began = driver.now
        driver.steps_until(Phase.HOLDING, 60)
        assert driver.lease.ring == "example"
        assert driver.now - began >= 15

    def test_one_that_was_given_back_is_any_rings(self) -> None:
        given_back = lease_of(ring="other", holderIdentity="", leaseDurationSeconds=1, instance=None)
        assert Driver(server=given_back).acquire().lease.ring == "example"

    def test_the_label_of_another_library_goes(self) -> None:
        """It would keep everything from this shard, since the sharder cannot tell by which labels it works."""
        server = lease_of()
        server.patch(LEASES, "shard-a", "default", {"metadata": {"labels": {LEASE_CONTROLLERRING_LABEL: "example"}}})
        assert Driver(server=server).lease.mixed
        lease = Driver(server=server).acquire().lease
        assert (lease.mixed, lease.ring) == (False, "example")

    def test_a_stale_promise_of_a_fence_is_taken_back(self) -> None:
        server = lease_of()
        promised = {FENCED_ANNOTATION: "2029-01-01T00:00:00.000000Z"}
        server.patch(LEASES, "shard-a", "default", {"metadata": {"annotations": promised}})
        assert Driver(server=server).lease.fenced
        lease = Driver(server=server).acquire().lease
        assert not lease.fenced
        assert FENCED_ANNOTATION not in (lease.metadata.annotations or {})

    @pytest.mark.parametrize("instance", ["uid-1", ""], ids=["of a crashed process", "of a restart grace"])
    def test_what_a_process_said_of_itself_ends_with_the_write_of_a_peer_that_does_not_know_it(
        self, instance: str
    ) -> None:
        """As when a Go shard starts under its name: client-go rewrites the spec and leaves the annotations."""
        driver = Driver(replace(CLAIM, fenced=True)).acquire()
        if not instance:
            driver.keeper.leave(driver.at(), grace_seconds=60)
            driver.now += 1
            driver.step()
        assert (driver.lease.instance, driver.lease.fenced) == (instance, True)
        said = driver.lease.metadata.annotations
        driver.meddle({"spec": {"leaseDurationSeconds": 15, "renewTime": "2031-01-01T00:00:00.000000Z"}})
        assert driver.lease.metadata.annotations == said
        assert (driver.lease.instance, driver.lease.fenced) == (None, False)
        # Nor is the lease the restarted container's own, or free: the peer is at work.
        assert 15 <= Driver(server=driver.server).steps_until(Phase.HOLDING, 16) < 15.1

    def test_losing_the_race_for_a_missing_lease_means_waiting(self) -> None:
        driver = Driver()
        driver.step()
        Driver(replace(CLAIM, instance="uid-2"), driver.server).acquire()
        assert driver.steps_until(Phase.HOLDING, 16) >= 15

    @pytest.mark.parametrize("asked", [60.0, 3600.0, math.inf])
    def test_a_lease_is_asked_for_again_soon_however_long_an_answer_asks_to_wait(self, asked: float) -> None:
        driver = Driver()
        driver.next()
        driver.keeper.failed(driver.at(), "no backend", retry_after_seconds=asked)
        assert driver.steps_until(Phase.HOLDING, 60) == pytest.approx(LeaseTimings().request_timeout)

    def test_a_creation_without_answer_is_recognised(self) -> None:
        driver = Driver()
        driver.step()
        create = driver.next()
        driver.execute(create)
        driver.now += 5
        driver.keeper.failed(driver.at(), "timeout")
        assert driver.keeper.phase is Phase.SEEKING
        assert driver.steps_until(Phase.HOLDING, 0.1) == 0

    def test_an_acquisition_whose_answer_takes_longer_than_the_deadline_is_none(self) -> None:
        driver = Driver()
        driver.step()
        driver.step(seconds=5.5)
        assert driver.keeper.deadlines is None
        driver.step()
        assert driver.keeper.deadlines is not None

    def test_a_wall_clock_without_fraction_still_writes_six_digits(self) -> None:
        renewed = Driver().acquire().lease.spec.renew_time
        assert renewed is not None
        assert renewed.endswith(".000000Z")
