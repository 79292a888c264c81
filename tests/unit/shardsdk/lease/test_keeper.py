"""How the keeper keeps a lease, loses it and leaves it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from shardsdk.lease.keeper import MAX_REFUSALS
from shardsdk.lease.steps import Left, LossKind, Phase, Read, Stop, Wait, Write
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import INSTANCE_ANNOTATION, SHARDER_HOLDER
from shardsdk.protocol.leases import LeaseSpec
from tests.keeper_driver import CANDIDATE, CLAIM, Driver, lease_of

#: A renewTime that nobody in the tests writes.
LATER = "2031-01-01T00:00:00.000000Z"


class TestHolding:
    def test_it_renews_each_period_under_the_version_last_seen(self) -> None:
        driver = Driver().acquire()
        before = driver.lease
        wait = driver.next()
        assert isinstance(wait, Wait)
        assert wait.seconds == pytest.approx(2)
        driver.now += wait.seconds
        renewal = driver.next()
        assert isinstance(renewal, Write)
        assert not renewal.create
        assert renewal.body["metadata"] == {
            "resourceVersion": before.metadata.resource_version,
            "annotations": {INSTANCE_ANNOTATION: f"uid-1@{renewal.body['spec']['renewTime']}"},
        }
        assert "acquireTime" not in renewal.body["spec"]

    def test_the_hold_counts_from_before_the_renewal_was_sent(self) -> None:
        driver = Driver().acquire().due()
        sent = driver.now
        driver.step(seconds=2)
        assert driver.keeper.deadlines == LeaseTimings().after(sent)

    def test_a_renewal_without_answer_extends_nothing_and_is_recognised_when_it_turns_out_to_have_happened(
        self,
    ) -> None:
        driver = Driver().acquire()
        before = driver.keeper.deadlines
        renewal = driver.due().next()
        driver.execute(renewal)
        driver.now += 5
        driver.keeper.failed(driver.at(), "timeout")
        assert driver.keeper.deadlines == before
        assert [type(driver.step()) for _ in range(2)] == [Read, Write]
        assert driver.keeper.phase is Phase.HOLDING
        assert driver.keeper.deadlines == LeaseTimings().after(driver.now)

    def test_the_state_label_that_the_sharder_writes_costs_one_read(self) -> None:
        driver = Driver().acquire().due()
        driver.meddle({"metadata": {"labels": {"alpha.sharding.timebertt.dev/state": "ready"}}})
        began = driver.now
        assert [type(driver.step()) for _ in range(3)] == [Write, Read, Write]
        assert driver.now == began
        assert driver.keeper.deadlines == LeaseTimings().after(began)

    def test_a_storm_of_conflicts_is_met_with_a_pause(self) -> None:
        driver = Driver().acquire().due()
        for _ in range(MAX_REFUSALS + 1):
            write = driver.next()
            assert isinstance(write, Write)
            driver.keeper.refused(driver.at(), "conflict")
            if isinstance(driver.next(), Read):
                driver.keeper.saw(driver.lease, driver.at())
        assert isinstance(driver.next(), Wait)

    @pytest.mark.parametrize(
        ("theft", "words"),
        [
            ({"spec": {"holderIdentity": SHARDER_HOLDER}}, f"is held by {SHARDER_HOLDER}"),
            ({"metadata": {"annotations": {INSTANCE_ANNOTATION: "uid-2"}}}, "or an edit by hand"),
            ({"metadata": {"annotations": {INSTANCE_ANNOTATION: None}}}, "or an edit by hand"),
            (
                {"spec": {"renewTime": LATER}},
                f"was written by somebody else (renewTime {LATER}): another process named shard-a, or an edit by hand",
            ),
            (
                {"metadata": {"annotations": {INSTANCE_ANNOTATION: f"uid-1@{LATER}"}}, "spec": {"renewTime": LATER}},
                "is renewed by another process that is shard-a (instance uid-1) too",
            ),
        ],
        ids=["holder", "instance", "no instance", "renewed without a word", "renewed by a twin"],
    )
    def test_it_steps_down_when_it_sees_another_process(self, theft: dict[str, Any], words: str) -> None:
        driver = Driver().acquire().due()
        driver.meddle(theft)
        stolen = driver.lease
        assert [type(driver.step()) for _ in range(3)] == [Write, Read, Stop]
        assert driver.keeper.loss is not None
        assert driver.keeper.loss.kind is LossKind.TAKEN
        assert words in driver.keeper.loss.message
        driver.keeper.leave(driver.at())
        assert driver.next() == Left(clean=True)
        assert driver.lease == stolen

    @pytest.mark.parametrize("how", ["deleted", "emptied", "unlabelled"])
    def test_what_a_hand_did_to_the_lease_is_mended_within_the_hold(self, how: str) -> None:
        driver = Driver().acquire().due()
        match how:
            case "deleted":
                driver.delete()
            case "emptied":
                driver.meddle({"spec": {"holderIdentity": "", "leaseDurationSeconds": 15}})
            case _:
                driver.meddle({"metadata": {"labels": None}})
        while not isinstance(driver.step(), Wait):
            pass
        assert driver.keeper.phase is Phase.HOLDING
        assert driver.lease.holder == "shard-a"
        assert driver.lease.ring == "example"

    def test_a_lease_that_somebody_took_and_gave_back_meanwhile_is_lost(self) -> None:
        """By the clock of a machine that stood still, the hold lasts; the objects have gone to others."""
        driver = Driver().acquire().due()
        driver.meddle({"spec": {"holderIdentity": SHARDER_HOLDER, "leaseTransitions": 1}})
        driver.meddle({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
        assert [type(driver.step()) for _ in range(3)] == [Write, Read, Stop]
        assert driver.keeper.loss is not None
        assert driver.keeper.loss.kind is LossKind.TAKEN
        assert "given back" in driver.keeper.loss.message

    @pytest.mark.parametrize("noticed", ["before it is read", "by what reads it", "by what puts it back"])
    @pytest.mark.parametrize("how", ["deleted", "emptied"])
    def test_a_lease_that_is_gone_after_this_machine_stood_still_is_lost(self, how: str, noticed: str) -> None:
        """Another had it, whose objects moved; then somebody's hand took away all that tells so."""
        driver = Driver().acquire().due()
        driver.meddle({"spec": {"holderIdentity": SHARDER_HOLDER, "leaseTransitions": 1}})
        if how == "deleted":
            driver.delete()
        else:
            driver.meddle({"spec": {"holderIdentity": "", "leaseDurationSeconds": 15}})
        for step in ("before it is read", "by what reads it", "by what puts it back"):
            action = driver.next()
            if noticed == step:
                driver.missed = 20.0
                driver.keeper.hurry(driver.at())
            if isinstance(action, Stop):
                break
            driver.do(action)
        assert isinstance(driver.next(), Stop)
        assert driver.keeper.loss is not None
        assert driver.keeper.loss.kind is LossKind.TAKEN
        assert "stood still" in driver.keeper.loss.message

    def test_time_that_was_missed_before_a_renewal_counts_against_nothing(self) -> None:
        driver = Driver().acquire().due()
        driver.missed = 20.0
        driver.keeper.hurry(driver.at())
        driver.step()
        driver.delete()
        driver.due()
        while not isinstance(driver.step(), Wait):
            pass
        assert driver.keeper.phase is Phase.HOLDING
        assert driver.lease.holder == "shard-a"

    @pytest.mark.parametrize("had", ["nothing", "the last holder's release", "a lease emptied by hand"])
    def test_it_steps_down_when_etcd_was_set_back_to_before_it_had_the_lease(self, had: str) -> None:
        driver = Driver()
        driver.server.version = 1000
        driver.acquire().due()
        driver.delete()
        driver.server.version = 500
        if had == "the last holder's release":
            driver.server = lease_of(holderIdentity="", leaseDurationSeconds=1)
        elif had != "nothing":
            driver.server = lease_of(holderIdentity="", leaseDurationSeconds=15)
        while not isinstance(driver.step(), Stop):
            pass
        assert driver.keeper.loss is not None
        assert driver.keeper.loss.kind is LossKind.TAKEN
        assert "backup" in driver.keeper.loss.message or had == "the last holder's release"

    def test_at_the_deadline_it_is_lost_and_says_why(self) -> None:
        driver = Driver().acquire()
        began = driver.now
        while not isinstance(action := driver.next(), Stop):
            if isinstance(action, Wait):
                driver.now += action.seconds
            else:
                driver.now += action.timeout_seconds
                driver.keeper.failed(driver.at(), "connection refused")
        assert driver.now - began == pytest.approx(10)
        assert action.loss.kind is LossKind.DEADLINE
        assert "not renewed within 10 s; last failure: connection refused" in action.loss.message

    def test_no_request_outlasts_the_deadline(self) -> None:
        driver = Driver().acquire()
        driver.now += 8.5
        assert driver.next().timeout_seconds == pytest.approx(1.5)

    def test_hung_requests_leave_time_for_others(self) -> None:
        """Tries are spread over the time to the deadline: an outage that ends in time is survived."""
        driver = Driver().acquire()
        tries: list[float] = []
        while not isinstance(action := driver.next(), Stop):
            if isinstance(action, Wait):
                driver.now += action.seconds
            else:
                tries.append(driver.now - 1000)
                driver.now += action.timeout_seconds
                driver.keeper.failed(driver.at(), "timeout")
        assert tries == pytest.approx([2, 7, 9])

    def test_lost_is_final_even_if_the_answer_comes_after_all(self) -> None:
        driver = Driver().acquire()
        driver.now += 9.5
        lease = driver.execute(driver.next())
        assert lease is not None
        driver.now += 1
        driver.keeper.wrote(lease, driver.at())
        assert driver.keeper.phase is Phase.LOST
        assert driver.keeper.deadlines == LeaseTimings().after(1000)

    def test_a_renewal_that_changes_nothing_is_none(self) -> None:
        """As when the wall clock stands still: the same renewTime again is answered with 200 and the old version."""
        driver = Driver().acquire().due()
        write = driver.next()
        assert isinstance(write, Write)
        driver.keeper.wrote(driver.lease, driver.at())
        assert driver.keeper.deadlines == LeaseTimings().after(1000)
        wait = driver.next()
        assert isinstance(wait, Wait)
        driver.now += wait.seconds
        assert isinstance(driver.step(), Write)
        assert driver.keeper.deadlines == LeaseTimings().after(driver.now)

    def test_the_fence_is_promised_with_a_write_that_is_due_at_once(self) -> None:
        driver = Driver().acquire()
        driver.keeper.promise_fence()
        driver.step()
        assert driver.lease.fenced

    def test_a_server_that_asks_for_time_gets_it(self) -> None:
        driver = Driver().acquire().due()
        driver.next()
        driver.keeper.failed(driver.at(), "too many requests", retry_after_seconds=3)
        wait = driver.next()
        assert isinstance(wait, Wait)
        assert wait.seconds == pytest.approx(3)

    @pytest.mark.parametrize("asked", [10.0, 60.0, 3600.0, math.inf])
    def test_but_no_more_than_leaves_time_to_renew(self, asked: float) -> None:
        """A load balancer asks for a minute when its backend is away for a second."""
        driver = Driver().acquire().due()
        driver.next()
        driver.keeper.failed(driver.at(), "no backend", retry_after_seconds=asked)
        assert [type(driver.due().step()) for _ in range(2)] == [Read, Write]
        assert driver.keeper.phase is Phase.HOLDING
        assert driver.keeper.deadlines == LeaseTimings().after(driver.now)

    def test_a_server_that_asks_for_too_much_time_each_time_is_asked_as_often_as_one_that_hangs(self) -> None:
        driver = Driver().acquire()
        tries: list[float] = []
        while not isinstance(action := driver.next(), Stop):
            if isinstance(action, Wait):
                driver.now += action.seconds
            else:
                tries.append(driver.now - 1000)
                driver.keeper.failed(driver.at(), "no backend", retry_after_seconds=3600)
        assert tries == pytest.approx([2, 7, 9])


class TestLeaving:
    def test_a_release_says_what_go_shards_say_and_takes_our_annotations_along(self) -> None:
        driver = Driver(replace(CLAIM, fenced=True)).acquire()
        driver.keeper.leave(driver.at())
        assert [type(driver.step()) for _ in range(2)] == [Write, Left]
        assert driver.lease.spec == LeaseSpec(
            holder_identity="",
            lease_duration_seconds=1,
            acquire_time="2030-01-01T00:16:40.000000Z",
            renew_time="2030-01-01T00:16:40.000000Z",
            lease_transitions=0,
        )
        assert not driver.lease.metadata.annotations
        assert driver.lease.ring == "example"

    def test_a_restart_grace_keeps_the_holder_and_empties_the_instance(self) -> None:
        driver = Driver().acquire()
        driver.keeper.leave(driver.at(), grace_seconds=60)
        driver.step()
        assert driver.next() == Left(clean=True)
        assert driver.lease.holder == "shard-a"
        assert driver.lease.instance == ""
        assert driver.lease.spec.lease_duration_seconds == 60
        Driver(replace(CLAIM, instance="uid-2"), driver.server).acquire()

    @pytest.mark.parametrize("fenced", [True, False])
    def test_a_restart_grace_promises_what_the_holder_has_promised(self, fenced: bool) -> None:
        driver = Driver(replace(CLAIM, fenced=fenced)).acquire()
        driver.now += 1
        driver.keeper.leave(driver.at(), grace_seconds=60)
        driver.step()
        assert driver.lease.fenced is fenced

    def test_a_release_is_conditional_and_tried_again_after_a_conflict(self) -> None:
        driver = Driver().acquire()
        driver.keeper.leave(driver.at())
        driver.meddle({"metadata": {"labels": {"alpha.sharding.timebertt.dev/state": "ready"}}})
        assert [type(driver.step()) for _ in range(4)] == [Write, Read, Write, Left]
        assert driver.lease.holder == ""

    def test_a_release_without_answer_is_recognised(self) -> None:
        driver = Driver().acquire()
        driver.keeper.leave(driver.at())
        driver.execute(driver.next())
        driver.keeper.failed(driver.at(), "timeout")
        version = driver.lease.metadata.resource_version
        driver.steps_until(Phase.LEFT, 5)
        assert driver.next() == Left(clean=True)
        assert driver.lease.metadata.resource_version == version

    def test_a_release_is_tried_until_the_hold_ends_and_then_left_to_run_out(self) -> None:
        driver = Driver().acquire()
        began = driver.now
        driver.keeper.leave(driver.at())
        while not isinstance(action := driver.next(), Left):
            if isinstance(action, Wait):
                driver.now += action.seconds
            else:
                driver.keeper.failed(driver.at(), "connection refused")
        assert not action.clean
        assert driver.now - began == pytest.approx(12.6)

    def test_after_a_lost_deadline_the_lease_is_still_released_within_the_hold(self) -> None:
        driver = Driver().acquire()
        driver.now += 11
        assert isinstance(driver.next(), Stop)
        driver.keeper.leave(driver.at())
        driver.steps_until(Phase.LEFT, 0)
        assert driver.lease.holder == ""

    def test_who_never_wrote_leaves_the_lease_alone(self) -> None:
        server = lease_of(instance="uid-0")
        driver = Driver(server=server)
        driver.step()
        version = driver.lease.metadata.resource_version
        driver.keeper.leave(driver.at())
        assert driver.next() == Left(clean=True)
        assert driver.lease.metadata.resource_version == version

    def test_an_acquisition_under_way_is_undone(self) -> None:
        driver = Driver()
        driver.step()
        driver.execute(driver.next())
        driver.keeper.leave(driver.at())
        driver.steps_until(Phase.LEFT, 0)
        assert driver.lease.holder == ""

    def test_what_a_twin_renewed_is_not_released(self) -> None:
        driver = Driver().acquire()
        driver.keeper.leave(driver.at())
        driver.meddle(
            {"metadata": {"annotations": {INSTANCE_ANNOTATION: f"uid-1@{LATER}"}}, "spec": {"renewTime": LATER}}
        )
        driver.steps_until(Phase.LEFT, 0)
        assert driver.next() == Left(clean=False)
        assert driver.lease.holder == "shard-a"

    def test_what_another_of_its_name_renewed_is_not_released(self) -> None:
        driver = Driver().acquire()
        driver.keeper.leave(driver.at())
        driver.meddle({"spec": {"renewTime": LATER}})
        driver.steps_until(Phase.LEFT, 0)
        assert driver.next() == Left(clean=True)
        assert driver.lease.spec.renew_time == LATER


class TestElection:
    def test_a_candidates_lease_carries_nothing_of_shards(self) -> None:
        lease = Driver(CANDIDATE).acquire().lease
        assert lease.holder == "candidate-1"
        assert not lease.metadata.labels
        assert not lease.metadata.annotations

    def test_a_candidate_waits_for_another_and_counts_the_transition(self) -> None:
        driver = Driver(CANDIDATE, lease_of(CANDIDATE, instance=None, ring=None, holderIdentity="candidate-0"))
        assert 15 <= driver.steps_until(Phase.HOLDING, 16) < 15.1
        assert driver.lease.spec.lease_transitions == 4

    def test_a_release_leaves_annotations_alone(self) -> None:
        driver = Driver(CANDIDATE).acquire()
        driver.meddle({"metadata": {"annotations": {"note": "y"}}})
        driver.keeper.leave(driver.at())
        driver.steps_until(Phase.LEFT, 0)
        assert driver.lease.metadata.annotations == {"note": "y"}
