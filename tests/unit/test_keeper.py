"""The keeper, one step at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from shardsdk.core.claim import Claim, render_release
from shardsdk.core.keeper import MAX_REFUSALS, Keeper
from shardsdk.core.steps import Left, LossKind, Moment, Phase, Read, Stop, Wait, Write
from shardsdk.core.timings import LeaseTimings
from shardsdk.errors import AlreadyExists, ConfigurationError, Conflict, NotFound
from shardsdk.protocol.labels import FENCED_ANNOTATION, INSTANCE_ANNOTATION, LEASE_RING_LABEL, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.testing.leaseserver import LeaseStore

CLAIM = Claim("default", "shard-a", "shard-a", 15, instance="uid-1", ring="example")
CANDIDATE = Claim("default", "election", "candidate-1", 15)
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Driver:
    """One process, and the API server's Lease, on one clock."""

    def __init__(self, claim: Claim = CLAIM, store: LeaseStore | None = None) -> None:
        self.claim = claim
        self.keeper = Keeper(claim, LeaseTimings())
        self.store = store or LeaseStore()
        self.now = 1000.0

    def at(self) -> Moment:
        return Moment(self.now, EPOCH + timedelta(seconds=self.now))

    def next(self) -> Any:
        return self.keeper.next(self.at())

    def execute(self, request: Read | Write) -> Lease | None:
        match request:
            case Read():
                return self.lease_or_none
            case Write(body, create):
                made = (
                    self.store.create(body) if create else self.store.patch(self.claim.namespace, self.claim.name, body)
                )
                return msgspec.convert(made, Lease)

    def step(self, seconds: float = 0.0) -> Any:
        """One step with a network that takes `seconds` each way."""
        action = self.next()
        if isinstance(action, Read | Write):
            self.now += seconds
            try:
                lease = self.execute(action)
            except (Conflict, AlreadyExists, NotFound) as error:
                self.keeper.refused(self.at(), str(error))
                return action
            self.now += seconds
            if isinstance(action, Read):
                self.keeper.saw(lease, self.at())
            else:
                assert lease is not None
                self.keeper.wrote(lease, self.at())
        return action

    def steps_until(self, phase: Phase, seconds: float) -> float:
        """Work until `phase`, at most for `seconds`; how long it took."""
        began = self.now
        while self.keeper.phase is not phase:
            assert self.now - began <= seconds, f"still {self.keeper.phase} after {seconds} s"
            if isinstance(action := self.step(), Wait):
                self.now += action.seconds
        return self.now - began

    def acquire(self) -> Driver:
        self.steps_until(Phase.HOLDING, 0)
        return self

    def due(self) -> Driver:
        """Let time pass until the next renewal is due."""
        while isinstance(action := self.next(), Wait):
            self.now += action.seconds
        return self

    @property
    def lease_or_none(self) -> Lease | None:
        return self.store.find(self.claim.namespace, self.claim.name)

    @property
    def lease(self) -> Lease:
        lease = self.lease_or_none
        assert lease is not None
        return lease

    def meddle(self, body: dict[str, Any]) -> None:
        self.store.patch(self.claim.namespace, self.claim.name, body)


def lease_of(
    claim: Claim = CLAIM, *, instance: str | None = "uid-1", ring: str | None = "example", **spec: Any
) -> LeaseStore:
    """An API server with one Lease that somebody wrote before."""
    store = LeaseStore()
    metadata: dict[str, Any] = {"name": claim.name, "namespace": claim.namespace}
    if ring is not None:
        metadata["labels"] = {LEASE_RING_LABEL: ring}
    if instance is not None:
        metadata["annotations"] = {INSTANCE_ANNOTATION: instance}
    given = {
        "holderIdentity": claim.holder,
        "leaseDurationSeconds": 15,
        "renewTime": "2029-01-01T00:00:00.000000Z",
        "acquireTime": "2029-01-01T00:00:00.000000Z",
        "leaseTransitions": 3,
        **spec,
    }
    store.create({"metadata": metadata, "spec": {key: value for key, value in given.items() if value is not None}})
    return store


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
        driver = Driver(store=lease_of(holderIdentity="", leaseDurationSeconds=1, instance=None)).acquire()
        assert driver.lease.holder == "shard-a"
        assert driver.lease.instance == "uid-1"
        assert driver.lease.spec.lease_transitions == 4

    def test_the_same_instance_goes_on_at_once(self) -> None:
        driver = Driver(store=lease_of()).acquire()
        assert driver.lease.spec.lease_transitions == 3
        assert driver.lease.spec.acquire_time == "2029-01-01T00:00:00.000000Z"

    def test_a_lease_left_in_grace_is_acquired_at_once(self) -> None:
        driver = Driver(store=lease_of(instance="", leaseDurationSeconds=60)).acquire()
        assert driver.lease.instance == "uid-1"
        assert driver.lease.spec.lease_duration_seconds == 15

    @pytest.mark.parametrize("instance", ["uid-0", None])
    def test_another_process_of_the_same_name_is_waited_for_until_its_lease_has_run_out(
        self, instance: str | None
    ) -> None:
        driver = Driver(store=lease_of(instance=instance))
        assert 15 <= driver.steps_until(Phase.HOLDING, 16) < 15.1

    def test_another_process_of_the_same_name_that_releases_is_succeeded_soon(self) -> None:
        driver = Driver(store=lease_of(instance="uid-0"))
        driver.step()
        driver.meddle(render_release(replace(CLAIM, instance="uid-0"), driver.lease, EPOCH))
        assert driver.steps_until(Phase.HOLDING, 3) <= 2

    def test_the_sharders_hold_is_waited_for_as_long_as_the_lease_says(self) -> None:
        driver = Driver(store=lease_of(holderIdentity=SHARDER_HOLDER, leaseDurationSeconds=30))
        assert 30 <= driver.steps_until(Phase.HOLDING, 31) < 30.1
        assert driver.lease.spec.lease_transitions == 4

    def test_each_renewal_of_another_starts_the_wait_anew(self) -> None:
        driver = Driver(store=lease_of(holderIdentity="other"))
        for second in range(40):
            driver.meddle({"spec": {"renewTime": f"2029-01-01T00:00:{second:02}.000000Z"}})
            driver.now += 1
            driver.step()
        assert driver.keeper.phase is Phase.SEEKING
        assert 14 <= driver.steps_until(Phase.HOLDING, 16) <= 15.1

    def test_a_label_on_anothers_lease_is_no_renewal(self) -> None:
        driver = Driver(store=lease_of(holderIdentity="other"))
        driver.step()
        driver.now += 10
        driver.meddle({"metadata": {"labels": {"alpha.sharding.timebertt.dev/state": "expired"}}})
        assert driver.steps_until(Phase.HOLDING, 5.1) <= 5.1

    def test_time_counts_from_when_the_lease_was_seen_and_not_from_when_it_was_asked_for(self) -> None:
        driver = Driver(store=lease_of(holderIdentity="other"))
        driver.step(seconds=2)
        seen = driver.now
        driver.steps_until(Phase.HOLDING, 20)
        assert driver.now - seen >= 15

    @pytest.mark.parametrize("duration", [None, 0, -5])
    def test_a_held_lease_without_a_usable_duration_lasts_fifteen_seconds(self, duration: int | None) -> None:
        driver = Driver(store=lease_of(holderIdentity="other", leaseDurationSeconds=duration, renewTime=None))
        assert 15 <= driver.steps_until(Phase.HOLDING, 16) < 15.1

    @pytest.mark.parametrize("how", ["deleted", "emptied"])
    def test_a_lease_that_was_seen_held_and_then_deleted_or_emptied_by_hand_counts_as_held(self, how: str) -> None:
        driver = Driver(store=lease_of(holderIdentity=SHARDER_HOLDER, leaseDurationSeconds=30))
        driver.step()
        if how == "deleted":
            driver.store.delete("default", "shard-a")
        else:
            driver.meddle({"spec": {"holderIdentity": "", "leaseDurationSeconds": 30}})
        assert 30 <= driver.steps_until(Phase.HOLDING, 31) < 30.1

    def test_who_holds_the_lease_is_told(self) -> None:
        driver = Driver(store=lease_of(holderIdentity="other", instance="uid-9"))
        driver.step()
        wait = driver.next()
        assert isinstance(wait, Wait)
        assert wait.why == "held by other (instance uid-9)"
        assert 0 < wait.seconds <= 2

    def test_what_others_wrote_on_the_lease_stays(self) -> None:
        store = lease_of(holderIdentity="")
        store.patch("default", "shard-a", {"metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}})
        lease = Driver(store=store).acquire().lease
        assert lease.metadata.labels == {"team": "x", LEASE_RING_LABEL: "example"}
        assert lease.metadata.annotations == {"note": "y", INSTANCE_ANNOTATION: "uid-1"}

    @pytest.mark.parametrize("ring", [None, "other"])
    def test_the_ring_label_of_a_free_lease_is_put_right(self, ring: str | None) -> None:
        assert Driver(store=lease_of(holderIdentity="", ring=ring)).acquire().lease.ring == "example"

    def test_one_process_cannot_be_a_shard_of_two_rings_under_one_name(self) -> None:
        with pytest.raises(ConfigurationError, match=r"ring 'other'.*name of its own"):
            Driver(store=lease_of(ring="other")).acquire()

    def test_a_stale_promise_of_a_fence_is_taken_back(self) -> None:
        store = lease_of()
        store.patch("default", "shard-a", {"metadata": {"annotations": {FENCED_ANNOTATION: "true"}}})
        assert not Driver(store=store).acquire().lease.fenced

    def test_losing_the_race_for_a_missing_lease_means_waiting(self) -> None:
        driver = Driver()
        driver.step()
        Driver(replace(CLAIM, instance="uid-2"), driver.store).acquire()
        assert driver.steps_until(Phase.HOLDING, 16) >= 15

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
        assert renewal.body["metadata"] == {"resourceVersion": before.metadata.resource_version}
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
        assert [type(driver.step()) for _ in range(3)] == [Write, Read, Write]
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
        "theft",
        [
            {"spec": {"holderIdentity": SHARDER_HOLDER}},
            {"metadata": {"annotations": {INSTANCE_ANNOTATION: "uid-2"}}},
            {"metadata": {"annotations": {INSTANCE_ANNOTATION: None}}},
            {"spec": {"renewTime": "2031-01-01T00:00:00.000000Z"}},
        ],
        ids=["holder", "instance", "no instance", "renewed by a twin"],
    )
    def test_it_steps_down_when_it_sees_another_process(self, theft: dict[str, Any]) -> None:
        driver = Driver().acquire().due()
        driver.meddle(theft)
        stolen = driver.lease
        assert [type(driver.step()) for _ in range(3)] == [Write, Read, Stop]
        assert driver.keeper.loss is not None
        assert driver.keeper.loss.kind is LossKind.TAKEN
        driver.keeper.leave(driver.at())
        assert driver.next() == Left(clean=True)
        assert driver.lease == stolen

    @pytest.mark.parametrize("how", ["deleted", "emptied", "unlabelled"])
    def test_what_a_hand_did_to_the_lease_is_mended_within_the_hold(self, how: str) -> None:
        driver = Driver().acquire().due()
        match how:
            case "deleted":
                driver.store.delete("default", "shard-a")
            case "emptied":
                driver.meddle({"spec": {"holderIdentity": "", "leaseDurationSeconds": 15}})
            case _:
                driver.meddle({"metadata": {"labels": None}})
        while not isinstance(driver.step(), Wait):
            pass
        assert driver.keeper.phase is Phase.HOLDING
        assert driver.lease.holder == "shard-a"
        assert driver.lease.ring == "example"

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
        assert tries == pytest.approx([2, 6, 8.5])

    def test_lost_is_final_even_if_the_answer_comes_after_all(self) -> None:
        driver = Driver().acquire()
        driver.now += 9.5
        lease = driver.execute(driver.next())
        assert lease is not None
        driver.now += 1
        driver.keeper.wrote(lease, driver.at())
        assert driver.keeper.phase is Phase.LOST
        assert driver.keeper.deadlines == LeaseTimings().after(1000)

    def test_the_fence_is_promised_with_a_write_that_is_due_at_once(self) -> None:
        driver = Driver().acquire()
        driver.keeper.promise_fence()
        driver.step()
        assert driver.lease.fenced

    def test_a_server_that_asks_for_time_gets_it(self) -> None:
        driver = Driver().acquire().due()
        driver.next()
        driver.keeper.failed(driver.at(), "too many requests", retry_after_seconds=5)
        wait = driver.next()
        assert isinstance(wait, Wait)
        assert wait.seconds == pytest.approx(5)


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
        Driver(replace(CLAIM, instance="uid-2"), driver.store).acquire()

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
        assert driver.now - began == pytest.approx(14)

    def test_after_a_lost_deadline_the_lease_is_still_released_within_the_hold(self) -> None:
        driver = Driver().acquire()
        driver.now += 11
        assert isinstance(driver.next(), Stop)
        driver.keeper.leave(driver.at())
        driver.steps_until(Phase.LEFT, 0)
        assert driver.lease.holder == ""

    def test_who_never_wrote_leaves_the_lease_alone(self) -> None:
        store = lease_of(instance="uid-0")
        driver = Driver(store=store)
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
        driver.meddle({"spec": {"renewTime": "2031-01-01T00:00:00.000000Z"}})
        driver.steps_until(Phase.LEFT, 0)
        assert driver.next() == Left(clean=False)
        assert driver.lease.holder == "shard-a"


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
