"""The standing list of planted faults: which rule each breaks, where, and what is meant to find it.

A fault is a piece of one module's source and what stands there instead.  The
piece has to be there exactly once: a fault whose place has changed is refused,
never skipped.  Those that replace whole methods are `tests.simulation.bugs`.
Imports nothing of the product, so that it can be planted before that is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: Tests that look for a fault, by what they are about.
KEEPER: Final = ("tests/unit/test_keeper.py", "tests/properties/test_keeper.py", "tests/unit/test_keeper_acquires.py")
LEASE: Final = ("tests/unit/test_shardlease.py", "tests/unit/test_shardlease_leaving.py")
TAKEOVER: Final = ("tests/unit/test_core_takeover.py", "tests/properties/test_takeover.py")
LEASES: Final = ("tests/unit/test_controllers_leases.py", "tests/properties/test_takeover.py")
GROUPS: Final = ("tests/unit/test_controllers_groups.py",)
PLACEMENT: Final = ("tests/unit/test_controllers_placement.py",)
DECISIONS: Final = ("tests/unit/test_core_decisions.py",)
ADMISSION: Final = ("tests/unit/test_core_admission.py", "tests/properties/test_admission.py")
FENCING: Final = ("tests/unit/test_kube_fencing.py", "tests/unit/test_kube_confirmations.py")
BARRIER: Final = ("tests/unit/test_barrier.py",)
DRAINS: Final = ("tests/unit/test_drains.py",)
OWN: Final = ("tests/unit/test_ownapi.py",)


@dataclass(frozen=True, slots=True)
class Fault:
    """`old` in the source of `module` becomes `new`; `tests` look for it, else simulated runs with this `focus`."""

    rule: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    focus: dict[str, float] = field(default_factory=dict)


_LEAVING: Final = {"crash_leader": 10.0, "pause_leader": 10.0, "trouble_leader": 20.0, "stop_shard": 10.0}

FAULTS: Final[dict[str, Fault]] = {
    # -- the shard and its lease ---------------------------------------------
    "HOLD_FROM_THE_ANSWER": Fault(
        "a hold counts from before its write was sent",
        "shardsdk.core.keeper",
        "deadlines = self._timings.after(self._asked_at)",
        "deadlines = self._timings.after(at.monotonic)",
        KEEPER,
    ),
    "DEAF_TO_THE_DEADLINE": Fault(
        "a shard that cannot renew steps down before its lease can be taken",
        "shardsdk.core.keeper",
        "if self.phase is Phase.HOLDING and at.monotonic >= self._deadlines.step_down_at:",
        "if False:",
        KEEPER,
    ),
    "TWINS_SHARE_A_LEASE": Fault(
        "a holder that sees another instance steps down",
        "shardsdk.core.claim",
        "if self.instance is None or lease.instance == self.instance:",
        "if True:",
        KEEPER,
    ),
    "TRUST_ANY_RENEWAL": Fault(
        "a renewal that this process did not write is another's",
        "shardsdk.core.keeper",
        "                if lease.spec.renew_time not in self._written:\n                    self._lose(",
        "                if False:\n                    self._lose(",
        KEEPER,
    ),
    "DO_NOT_WAIT_FOR_ANOTHER": Fault(
        "a shard waits while another holds its lease, unexpired",
        "shardsdk.core.keeper",
        "if taken and at.monotonic < self._others_until:",
        "if False:",
        KEEPER,
    ),
    "UNCONDITIONAL_RENEWAL": Fault(
        "every lease write is conditional on the version that was seen",
        "shardsdk.core.claim",
        'return {"resourceVersion": lease.metadata.resource_version}',
        "return {}",
        KEEPER,
    ),
    "EMPTIED_IS_FREE": Fault(
        "a lease emptied other than by a release counts as held until it would have run out",
        "shardsdk.core.claim",
        "return lease.spec.lease_duration_seconds == RELEASED_DURATION_SECONDS",
        "return True",
        KEEPER,
    ),
    "NO_MARGIN": Fault(
        "a holder has stopped writing a margin before its lease can be taken",
        "shardsdk.protocol.leases",
        "MARGIN_SHARE: Final = 0.1",
        "MARGIN_SHARE: Final = 0.0",
        ("tests/unit/test_timings.py", *KEEPER, *FENCING),
    ),
    "RELEASE_BEFORE_SETTLED": Fault(
        "a shard releases its lease only when its own writes are answered or dead",
        "shardsdk.runtime.shardlease",
        "settled = await self._settle()",
        "settled = True",
        LEASE,
    ),
    "OLD_ANNOTATIONS_COUNT": Fault(
        "an annotation speaks for the write that it came with, and no other",
        "shardsdk.protocol.leases",
        "return promised_at is not None and promised_at == self.spec.renew_time",
        "return promised_at is not None",
        ("tests/contracts/test_leases.py", "tests/unit/test_core_shards.py"),
    ),
    # -- writes ----------------------------------------------------------------
    "ASK_THE_FENCE_ONCE": Fault(
        "the fence is asked again as the bytes go",
        "shardsdk.kube.fencing",
        "            left = self.remaining()\n            if self._fences",
        "            left = self._granted\n            if self._fences",
        FENCING,
    ),
    "GRANT_THE_WHOLE_HOLD": Fault(
        "a fenced write is granted less time than the hold lasts",
        "shardsdk.kube.fencing",
        "self._granted = granted_of(remaining) if self._fences else remaining",
        "self._granted = remaining + 5.0",
        FENCING,
    ),
    "ERRORS_ARE_ANSWERS": Fault(
        "a write that was answered with a 5xx may still be executed",
        "shardsdk.kube.fencing",
        "        return len(self._open)",
        "        self._open.clear()\n        return 0",
        FENCING,
    ),
    # -- the shard and its objects -------------------------------------------
    "RECONCILE_WHILE_DRAINING": Fault(
        "a shard reconciles an object only while no drain label is on it",
        "shardsdk.core.guard",
        "return Verdict.ACKNOWLEDGE if ring.drain in labels else Verdict.RECONCILE",
        "return Verdict.RECONCILE",
        ("tests/unit/test_guard.py",),
    ),
    "RECONCILE_WHAT_IS_ANOTHERS": Fault(
        "a shard reconciles only what names it",
        "shardsdk.core.guard",
        "if not labels or not shard or labels.get(ring.shard) != shard:",
        "if not labels or not shard or ring.shard not in labels:",
        ("tests/unit/test_guard.py",),
    ),
    "KEEP_WHAT_WAS_GIVEN_AWAY": Fault(
        "an object that left a shard's selection is forgotten there",
        "shardsdk.kube.mirror",
        "gone = event.kind is WatchKind.DELETED or (",
        "gone = False or (",
        ("tests/unit/test_kube_reflector.py", "tests/properties/test_reflector.py"),
    ),
    "ACKNOWLEDGE_UNSETTLED": Fault(
        "a drain is acknowledged only when the shard's own writes are answered or dead",
        "shardsdk.runtime.drains",
        "            await self._api.writes_settled()",
        "            pass",
        DRAINS,
    ),
    "ACKNOWLEDGE_ANY_VERSION": Fault(
        "an acknowledgement carries the version that was seen",
        "shardsdk.runtime.drains",
        '"resourceVersion": metadata.resource_version, ',
        "",
        DRAINS,
    ),
    "ACKNOWLEDGE_A_NEWER_OBJECT": Fault(
        "an object that changed while writes were settling is settled anew",
        "shardsdk.runtime.drains",
        "if metadata is None or metadata.resource_version != known.resource_version:",
        "if metadata is None:",
        DRAINS,
    ),
    "BARRIER_REMEMBERS": Fault(
        "an owner that left and comes back waits for its children again",
        "shardsdk.runtime.barrier",
        '        """`owner` is gone from this shard."""\n        self._passed.pop(owner, None)\n',
        '        """`owner` is gone from this shard."""\n',
        BARRIER,
    ),
    "BARRIER_LISTS_ONLY": Fault(
        "an owner passes once the cache shows what the list showed",
        "shardsdk.runtime.barrier",
        "if not cache.has_seen(found.child, found.version):",
        "if False:",
        BARRIER,
    ),
    "BARRIER_WITHOUT_SETTLING": Fault(
        "after a write in doubt the list begins when that can no longer be executed",
        "shardsdk.runtime.barrier",
        "                    await self._settle()",
        "                    pass",
        BARRIER,
    ),
    "NO_EXPECTATIONS": Fault(
        "an object is not reconciled again before the cache shows what was written",
        "shardsdk.runtime.expectations",
        "        if not mine:\n            return False\n        now",
        "        if True:\n            return False\n        now",
        ("tests/unit/test_expectations.py",),
    ),
    "CHILDREN_WITHOUT_LABEL": Fault(
        "a shard labels the children that it creates",
        "shardsdk.runtime.ownapi",
        "        if not self._identity.labels:\n",
        "        if True:\n",
        OWN,
    ),
    "MAIN_WRITTEN_BLINDLY": Fault(
        "writes on main objects carry their version",
        "shardsdk.runtime.ownapi",
        '"resourceVersion": metadata.get("resourceVersion") or self._version}',
        '"resourceVersion": metadata.get("resourceVersion")}',
        OWN,
    ),
    # -- states of shards ------------------------------------------------------
    "OUTAGES_COUNT": Fault(
        "time counts against leases only while commits are proven",
        "sharder.core.proof",
        "since = max((gap.ended_at for gap in known.gaps if gap.seconds > tolerated), default=known.began_at)",
        "since = known.began_at",
        ("tests/properties/test_proof.py", "tests/unit/test_core_shards.py", *LEASES),
    ),
    "TWO_OF_ONE_NAME": Fault(
        "nothing moves on a name that two leases claim",
        "sharder.core.decisions",
        "if label in membership.ambiguous:",
        "if False:",
        DECISIONS,
    ),
    "STRANGERS_ARE_SHARDS": Fault(
        "a shard is available exactly when its lease says that it holds it",
        "shardsdk.protocol.leases",
        'return self.holder != "" and self.holder == self.metadata.name',
        'return self.holder != ""',
        ("tests/unit/test_core_membership.py", "tests/unit/test_core_shards.py"),
    ),
    # -- taking leases over ----------------------------------------------------
    "DELETED_IS_FREE": Fault(
        "a lease that was deleted counts as held until it would have run out",
        "sharder.controllers.custodies",
        "return max(ends, default=None)",
        "return 0.0 if ends else None",
        (),
        {"delete_lease": 30.0, "touch_work": 20.0},
    ),
    "UNKNOWN_IS_FREE": Fault(
        "a leader that never saw a missing lease waits the ring's longest duration",
        "sharder.controllers.custodies",
        "return _ends(record.missing_since, entry.longest_duration, proven_since)",
        "return 0.0",
        (),
        {"delete_lease": 30.0, "crash_leader": 20.0, "touch_work": 20.0},
    ),
    "TAKE_WITH_NOBODY_READY": Fault(
        "a lease is acquired only while another shard can take the objects",
        "sharder.core.takeover",
        '        return Step(Act.WAIT, "not renewed in time, but no other shard is ready to take its objects")',
        '        return Step(Act.ACQUIRE, "not renewed in time, but no other shard is ready to take its objects")',
        TAKEOVER,
    ),
    "FOUND_IN_OUR_NAME": Fault(
        "a lease found in the sharder's name is no hold until this leader has renewed it",
        "sharder.core.takeover",
        "confirmed = custody.hold_until is not None and now < custody.hold_until",
        "confirmed = True",
        TAKEOVER,
    ),
    "SHARDERS_HOLD_FROM_THE_ANSWER": Fault(
        "the sharder's hold counts from before its write was sent",
        "sharder.controllers.leasewrites",
        "record.hold.until, record.hold.missed = sent_at + usable_seconds(record.hold_length), missed",
        "record.hold.until, record.hold.missed = self._clock.monotonic() + 2 * record.hold_length, missed",
        LEASES,
    ),
    "ACQUIRE_ANY_VERSION": Fault(
        "a lease is acquired in the version that was seen",
        "sharder.controllers.leasewrites",
        '                "resourceVersion": lease.metadata.resource_version,\n                # What',
        "                # What",
        LEASES,
    ),
    "GIVE_BACK_UNSETTLED": Fault(
        "a lease is given back when nothing that was sent under it can be executed any more",
        "sharder.controllers.leasewrites",
        "                await self._api.writes_settled()",
        "                pass",
        LEASES,
    ),
    "GIVE_BACK_UNREAD": Fault(
        "a lease is given back when a consistent read shows no object with its label",
        "sharder.controllers.leases",
        "if others and emptied and not await self._confirm_empty(key):",
        "if False:",
        LEASES,
    ),
    "NEVER_GIVE_BACK": Fault(
        "a lease is given back when nothing has progressed for a while",
        "sharder.core.takeover",
        "    if confirmed and now >= stalled_at:",
        "    if False:",
        TAKEOVER,
    ),
    # -- moving families -------------------------------------------------------
    "MOVE_WITHOUT_RENEWAL": Fault(
        "a lease is renewed between the drain of its owners and the read of their children",
        "sharder.controllers.groups",
        "renewed = await self._placer.around.holds.renew(self._placer.name, shard)",
        "renewed = True",
        GROUPS,
    ),
    "NARROW_READ": Fault(
        "children are read wherever they may be",
        "sharder.controllers.children",
        "return Selector(labels=not_in(labels.shard, {target})) if target is not None else Selector()",
        'return Selector(labels=labels.shard) if target is not None else Selector(labels="!" + labels.shard)',
        GROUPS,
    ),
    "ANOTHER_TARGET": Fault(
        "a group keeps its target, or starts over from the children",
        "sharder.controllers.groups",
        "if kept is not None and kept in membership.available:",
        "if False:",
        GROUPS,
    ),
    "LAGGING_WATCH": Fault(
        "no group is begun by what is older than the leader's own write",
        "sharder.controllers.past",
        "        if now - written_at < MAX_LAG_SECONDS:\n            return True",
        "        if now - written_at < MAX_LAG_SECONDS:\n            return False",
        ("tests/unit/test_controllers_past.py", *GROUPS),
    ),
    "NO_DOUBTS": Fault(
        "an owner whose write is in doubt is read again before anything of it moves",
        "sharder.controllers.past",
        "return uid in self._doubtful",
        "return False",
        ("tests/unit/test_controllers_past.py", *GROUPS),
    ),
    "CHANGED_OWNER": Fault(
        "a group whose owner's labels have changed is decided anew",
        "sharder.controllers.groups",
        "return all(group.meta.label(key) == before.label(key) for key in (shard, drain))",
        "return True",
        GROUPS,
    ),
    "STILL_DRAINING": Fault(
        "the owner's last patch takes the drain label off",
        "sharder.controllers.groups",
        "target, group.meta.resource_version, clear_drain=True)",
        "target, group.meta.resource_version, clear_drain=False)",
        GROUPS,
    ),
    # -- the one decision --------------------------------------------------------
    "TEAR_FROM_THE_LIVING": Fault(
        "a main object on another available shard is drained, never moved",
        "sharder.core.decisions",
        "Decision.DRAIN,\n        (Role.MAIN, Situation.STRANDED): Decision.MOVE,",
        "Decision.MOVE,\n        (Role.MAIN, Situation.STRANDED): Decision.MOVE,",
        DECISIONS,
    ),
    "DO_NOT_AWAIT": Fault(
        "a draining object waits for its shard, as long as that is available",
        "sharder.core.decisions",
        "if facts.role is Role.MAIN and facts.draining and label in membership.available:",
        "if False:",
        DECISIONS,
    ),
    "DRAIN_TO_THE_UNREADY": Fault(
        "nothing is drained toward a shard that is not ready",
        "sharder.core.decisions",
        "if decision is Decision.DRAIN and not membership.may_drain_to(name):",
        "if False:",
        DECISIONS,
    ),
    "CHILDREN_BY_THE_RING": Fault(
        "a child belongs where its owner is now, not where the ring says",
        "sharder.core.decisions",
        "    if key is None or not owner_exists:\n",
        "    if True:\n",
        DECISIONS,
    ),
    "ASSIGN_ANY_VERSION": Fault(
        "labels are written in one patch that is conditional on the version that was seen",
        "sharder.core.patches",
        'return {"metadata": {"resourceVersion": resource_version, "labels": dict(changed)}}',
        'return {"metadata": {"labels": dict(changed)}}',
        ("tests/unit/test_core_patches.py",),
    ),
    "FROZEN_KEYS": Fault(
        "the format of keys is frozen",
        "sharder.core.keys",
        'return f"{group}/{kind}/{namespace}/{name}"',
        'return f"{group}/{kind}/{name}/{namespace}"',
        ("tests/unit/test_core_keys.py",),
    ),
    # -- the webhook --------------------------------------------------------------
    "DENY": Fault(
        "the webhook never denies",
        "sharder.core.admission",
        '{"uid": uid, "allowed": True}',
        '{"uid": uid, "allowed": bool(answer.patch)}',
        ADMISSION,
    ),
    "REMOVED_LABELS_STAY_OFF": Fault(
        "a shard label that was removed without drain is put back",
        "sharder.core.admission",
        "    if removed is not None:\n",
        "    if False:\n",
        ADMISSION,
    ),
    "REPLACED_IS_ACKNOWLEDGED": Fault(
        "an acknowledgement changes the two labels and nothing else",
        "sharder.core.admission",
        "return None if labels.drain in removed and is_acknowledgement(body, labels) else removed",
        "return None if labels.drain in removed else removed",
        ADMISSION,
    ),
    "OWNERS_PLACED_AT_ONCE": Fault(
        "an owner with controlled resources is placed by the webhook when it is created only",
        "sharder.core.admission",
        'if not meta.name or (subject.main.controlled and request.operation == "UPDATE"):',
        "if not meta.name:",
        ADMISSION,
    ),
    "STALE_ASSIGNS": Fault(
        "a replica whose view is stale assigns nothing",
        "sharder.core.admission",
        "    if stale:\n",
        "    if False:\n",
        ADMISSION,
    ),
    "ANY_OWNER_OF_THE_NAME": Fault(
        "an owner of another uid is not the child's owner",
        "sharder.core.admission",
        "exists = owner is not None and (not need.uid or owner.metadata.uid == need.uid)",
        "exists = owner is not None",
        ADMISSION,
    ),
    "FAIL_CLOSED": Fault(
        "a webhook that cannot be asked lets the request pass",
        "sharder.core.webhookconfig",
        '"failurePolicy": "Ignore"',
        '"failurePolicy": "Fail"',
        ("tests/unit/test_core_webhookconfig.py",),
    ),
    # -- rarely met, for the simulation alone -----------------------------------------
    "GIVE_BACK_EARLY": Fault(
        "a stopping sharder gives nothing back while moves are under way",
        "sharder.controllers.leasewrites",
        "        record.drop()\n        try:\n            async with",
        "        try:\n            async with",
        (),
        _LEAVING,
    ),
    "OWNER_PASSES_TWICE": Fault(
        "an owner that is given back to a shard waits for its children again",
        "shardsdk.runtime.reconciler",
        "            self._barrier.left(request)\n            return\n        priority",
        "            return\n        priority",
        ("tests/unit/test_barrier.py", "tests/unit/test_drains.py"),
        {"add_shard": 20.0, "drain_by_hand": 20.0},
    ),
}
