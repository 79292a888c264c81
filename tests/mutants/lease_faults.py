"""Faults planted into how a lease is held, by its shard and by the sharder, one for each rule."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

#: Tests that look for a fault, by what they are about.
FENCING: Final = ("tests/unit/shardsdk/kube/test_fencing.py", "tests/unit/shardsdk/kube/test_confirmations.py")
KEEPER: Final = (
    "tests/unit/shardsdk/lease/test_keeper.py",
    "tests/properties/test_keeper.py",
    "tests/unit/shardsdk/lease/test_keeper_acquires.py",
    "tests/unit/shardsdk/lease/test_keeper_reads.py",
)
HOLDS: Final = ("tests/unit/sharder/takeover/test_holds.py",)
DOUBTS: Final = ("tests/unit/shardsdk/kube/test_doubts.py",)
LEASE: Final = ("tests/unit/shardsdk/lease/test_shardlease.py", "tests/unit/shardsdk/lease/test_shardlease_leaving.py")

LEASE_FAULTS: Final[dict[str, Fault]] = {
    "HOLD_FROM_THE_ANSWER": Fault(
        "a hold counts from before its write was sent",
        "shardsdk.lease.keeper",
        "self._hold_from(self._asked, at)",
        "self._hold_from(Asked(at.monotonic), at)",
        KEEPER,
    ),
    "NOTHING_IS_OWED": Fault(
        "what a dead process had sent is waited for before anything is given away",
        "shardsdk.lease.incarnation",
        "return lease.holder == self._name and lease.instance == self.instance",
        "return False",
        ("tests/unit/shardsdk/lease/test_owed.py",),
    ),
    "OWED_IS_NOT_SAID": Fault(
        "a lease goes on saying what the dead process held",
        "shardsdk.ranges.parts",
        "return self._owed | self._own",
        "return self._own",
        ("tests/unit/shardsdk/lease/test_owed.py",),
    ),
    "A_FLAG_THAT_WAS_THERE_IS_TAKEN_FOR_WRITTEN": Fault(
        "what is flagged is confirmed by a write of its own, also where the lease says it anyway",
        "shardsdk.ranges.parts",
        "self.number += self._own != own",
        "self.number += (self._owed | self._own) != (self._owed | own)",
        ("tests/unit/shardsdk/lease/test_owed.py",),
    ),
    "A_READ_RENEWS": Fault(
        "a renewal that a read finds counts from when it was sent",
        "shardsdk.lease.keeper",
        "self._hold_from(sent, at)",
        "self._hold_from(self._asked, at)",
        KEEPER,
    ),
    "A_STANDING_CLOCK_RENEWS": Fault(
        "of two renewals with one renewTime a read shows the first",
        "shardsdk.lease.keeper",
        "self._written.setdefault(render_micro_time(at.wall), self._asked)",
        "self._written[render_micro_time(at.wall)] = self._asked",
        KEEPER,
    ),
    "DEAF_TO_THE_DEADLINE": Fault(
        "a shard that cannot renew steps down before its lease can be taken",
        "shardsdk.lease.keeper",
        "if self.phase is Phase.HOLDING and at.monotonic >= self._deadlines.step_down_at:",
        "if False:",
        KEEPER,
    ),
    "TWINS_SHARE_A_LEASE": Fault(
        "a holder that sees another instance steps down",
        "shardsdk.lease.claim",
        "if self.instance is None or lease.instance == self.instance:",
        "if True:",
        KEEPER,
    ),
    "TWINS_SHARE_A_POD": Fault(
        "of the living processes of a pod one says its UID as its instance",
        "shardsdk.lease.incarnation",
        "        except SeatTaken:\n            return True\n",
        "        except SeatTaken:\n            return False\n",
        ("tests/unit/shardsdk/lease/test_seat.py",),
    ),
    "TRUST_ANY_RENEWAL": Fault(
        "a renewal that this process did not write is another's",
        "shardsdk.lease.keeper",
        'sent = self._written.get(lease.spec.renew_time or "")',
        'sent = self._written.get(lease.spec.renew_time or "", self.confirmed)',
        KEEPER,
    ),
    "DO_NOT_WAIT_FOR_ANOTHER": Fault(
        "a shard waits while another holds its lease, unexpired",
        "shardsdk.lease.keeper",
        "if taken and at.monotonic < self._others.until:",
        "if False:",
        KEEPER,
    ),
    "GIVEN_BACK_COUNTS_AS_KEPT": Fault(
        "a holder steps down when its lease was taken and given back meanwhile",
        "shardsdk.lease.keeper",
        "                if released(lease):\n                    self._lose(",
        "                if False:\n                    self._lose(",
        KEEPER,
    ),
    "CHANGED_RANGES_RENEW": Fault(
        "a write is a renewal only if others count the lease anew after it",
        "shardsdk.lease.keeper",
        "renewal_of(lease) == renewal_of(self._known):",
        "lease.metadata.resource_version == self._known.metadata.resource_version:",
        ("tests/properties/test_keeper_ranges.py", "tests/unit/shardsdk/lease/test_held_ranges.py"),
    ),
    "PUT_BACK_AFTER_A_STOP": Fault(
        "a lease that is gone after this machine stood still may have been another's, and is not put back",
        "shardsdk.lease.keeper",
        "gone and self.confirmed and at.missed > self.confirmed.missed",
        "gone and False",
        KEEPER,
    ),
    "RESTORES_GO_UNNOTICED": Fault(
        "a holder whose lease is older than its last renewal forgets what it knew",
        "shardsdk.lease.keeper",
        "if self.phase is Phase.HOLDING and is_older(lease, self._version):",
        "if False:",
        (),
        {"restore_etcd": 6.0},
    ),
    "TAKEN_UNSEEN_IS_SHORT": Fault(
        "a lease that somebody took away before this leader looked counts as held for as long as it says itself",
        "sharder.core.observed",
        "return max(own, longest_of(others))",
        "return longest_of(others)",
        ("tests/unit/sharder/core/test_observed.py",),
    ),
    "VERSIONS_ARE_GIVEN_ONCE": Fault(
        "a lease that says something else in the version that was seen is not taken over",
        "sharder.takeover.facts",
        "    return same and (seen.metadata.uid, seen.spec) != (found.metadata.uid, found.spec)",
        "    return False",
        ("tests/unit/sharder/takeover/test_facts.py",),
    ),
    "LISTS_GO_BY_VERSIONS": Fault(
        "a list that says something else in a known version is believed",
        "shardsdk.kube.mirror",
        "if same and (not initial or _says_the_same(old, thing)):",
        "if same:",
        ("tests/unit/shardsdk/kube/test_mirror.py",),
    ),
    "UNCONDITIONAL_RENEWAL": Fault(
        "every lease write is conditional on the version that was seen",
        "shardsdk.lease.claim",
        'return {"resourceVersion": lease.metadata.resource_version}',
        "return {}",
        KEEPER,
    ),
    "EMPTIED_IS_FREE": Fault(
        "a lease emptied other than by a release counts as held until it would have run out",
        "shardsdk.lease.claim",
        "return lease.spec.lease_duration_seconds == RELEASED_DURATION_SECONDS",
        "return True",
        KEEPER,
    ),
    "NO_MARGIN": Fault(
        "a holder has stopped writing a margin before its lease can be taken",
        "shardsdk.protocol.leases",
        "MARGIN_SHARE: Final = 0.1",
        "MARGIN_SHARE: Final = 0.0",
        ("tests/unit/shardsdk/lease/test_timings.py", *KEEPER, *FENCING),
    ),
    "RELEASE_BEFORE_SETTLED": Fault(
        "a shard releases its lease only when its own writes are answered or dead",
        "shardsdk.lease.shardlease",
        "settled = await self._settle()",
        "settled = True",
        LEASE,
    ),
    "OLD_ANNOTATIONS_COUNT": Fault(
        "an annotation speaks for the write that it came with, and no other",
        "shardsdk.protocol.leases",
        "return promised_at is not None and promised_at == self.spec.renew_time",
        "return promised_at is not None",
        ("tests/contracts/test_leases.py", "tests/unit/sharder/core/test_shards.py"),
    ),
    "LEAVING_FOR_EVER": Fault(
        "what a shard that was about to leave has said, nobody has said who renews its lease later",
        "shardsdk.protocol.leases",
        "return said_at is not None and said_at == self.spec.renew_time",
        "return said_at is not None",
        ("tests/unit/shardsdk/lease/test_leaving.py",),
    ),
    "AN_ERROR_CREATED_NOTHING": Fault(
        "a lease whose creation was answered with a 5xx may come to be, also for who is about to leave",
        "shardsdk.lease.tenure",
        "rejected = isinstance(request, Write) and not may_be_executed(error)",
        "rejected = isinstance(request, Write)",
        ("tests/unit/shardsdk/lease/test_tenure_seeking.py",),
    ),
    # -- the sharder's holds on them -------------------------------------------
    "SHARDERS_HOLD_MISSES_NOTHING": Fault(
        "the sharder's hold is shorter by what the leader's machine has missed",
        "sharder.takeover.fences",
        "self.until - self.clock.monotonic() - (lapses_of(self.clock).seconds - self.missed)",
        "self.until - self.clock.monotonic()",
        HOLDS,
    ),
    "FORGET_AND_STILL_HOLD": Fault(
        "under a hold on a lease that is gone nothing more is written",
        "sharder.takeover.records",
        "        if record is not None:\n            record.drop()\n",
        "",
        HOLDS,
    ),
    "ONE_RENEWAL_IS_ALL": Fault(
        "what a name with several leases has moves once each of them was renewed",
        "sharder.takeover.controller",
        "all([await self._renew(key) for key in keys])",
        "any([await self._renew(key) for key in keys])",
        HOLDS,
    ),
    "DELETE_ANY_VERSION": Fault(
        "an orphaned lease is deleted in the version that was seen",
        "sharder.takeover.lease_client",
        "                resource_version=meta.resource_version,\n",
        "",
        ("tests/unit/sharder/takeover/test_controller.py",),
    ),
    "WRITE_WHILE_STOPPING": Fault(
        "a leader that waits for what it has sent, to hand over, begins no other write",
        "sharder.takeover.fences",
        "return 0.0 if self.shut else self.fence.remaining()",
        "return self.fence.remaining()",
        ("tests/unit/sharder/rings/test_stopping.py",),
    ),
    "LEFT_IS_NO_TRANSITION": Fault(
        "a lease that was left for a restart is acquired as one that was given back",
        "shardsdk.lease.claim",
        " or (claim.instance is not None and released(lease)):",
        ":",
        ("tests/unit/shardsdk/lease/test_leaving.py",),
    ),
    "AT_WORK_IN_DOUBT": Fault(
        "a reconcile whose hold a standing clock has outlasted ends before that is confirmed",
        "shardsdk.kube.doubts",
        "                    end()\n",
        "                    pass\n",
        DOUBTS,
    ),
    "DOUBT_WITHOUT_CONTROLLER": Fault(
        "a controller ends what runs in doubt",
        "shardsdk.reconcile.controller",
        "            beside.append(group.create_task(end_in_doubt(self._fence, self._clock, end, again)))\n",
        "",
        DOUBTS,
    ),
    "BEGIN_IN_DOUBT": Fault(
        "no reconcile begins while the hold is in doubt",
        "shardsdk.queueing.queue",
        "while self._held or not self._waiting:",
        "while not self._waiting:",
        DOUBTS,
    ),
    "HEARD_IN_DOUBT": Fault(
        "a reconcile that was cancelled in doubt comes back, whatever it says to that",
        "shardsdk.queueing.attempts",
        "return self.doubted and (early is Early.DOUBT or (early is Early.LIMIT and self.concluded))",
        "return early is Early.DOUBT and not self.concluded",
        DOUBTS,
    ),
    "NO_LIMIT_AFTER_A_DOUBT": Fault(
        "a reconcile that goes on after a doubt is cancelled at its limit",
        "shardsdk.queueing.attempts",
        "not self._reasons.isdisjoint((why, Early.CANCELLED)):",
        "self._reasons:",
        DOUBTS,
    ),
    "OUTWAIT_WHO_IS_GONE": Fault(
        "a lease that another holds runs out one of its durations after it was seen to be renewed",
        "shardsdk.lease.claim",
        "if seen != self._seen:\n                    self._seen, self.until = seen, now + lease.duration_seconds",
        "if seen != self._seen:\n                    self._seen, self.until = seen, now + 3 * lease.duration_seconds",
        focus={"crash_leader": 12.0},
    ),
}
