"""Faults planted mostly into the sharder, one for each rule that it follows, and those for the simulation alone."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

#: Tests that look for a fault, by what they are about.
TAKEOVER: Final = ("tests/unit/sharder/core/test_takeover.py", "tests/properties/test_takeover.py")
OBSERVED: Final = ("tests/unit/sharder/core/test_observed.py",)
LEASES: Final = (
    "tests/unit/sharder/takeover/test_controller.py",
    "tests/unit/sharder/takeover/test_failover.py",
    "tests/unit/sharder/takeover/test_placeholders.py",
    "tests/unit/sharder/cache/test_rings.py",
    "tests/properties/test_takeover.py",
)
ORDER: Final = ("tests/unit/sharder/core/test_handover.py",)
GROUPS: Final = (
    "tests/unit/sharder/placement/test_family_order.py",
    "tests/unit/sharder/placement/test_handover.py",
    "tests/unit/sharder/placement/test_placement.py",
)
FOLLOWERS: Final = ("tests/unit/sharder/placement/test_followers.py",)
NAMESPACES: Final = ("tests/unit/sharder/placement/test_namespaces_watched.py",)
MEANWHILE: Final = ("tests/unit/sharder/placement/test_namespaces_meanwhile.py",)
CLUSTER_SCOPED: Final = ("tests/unit/sharder/placement/test_owners_without_namespace.py",)
EDITS: Final = ("tests/unit/sharder/placement/test_labels.py",)
UNUSABLE: Final = ("tests/unit/sharder/rings/test_not_in_use.py",)
RESYNC: Final = ("tests/unit/sharder/core/test_resync.py", "tests/unit/sharder/placement/test_resync.py")

SHARDER_FAULTS: Final[dict[str, Fault]] = {
    # -- states of shards ------------------------------------------------------
    "OUTAGES_COUNT": Fault(
        "time counts against leases only while commits are proven",
        "sharder.core.proven_time",
        "since = max((gap.ended_at for gap in known.gaps if gap.seconds > tolerated), default=known.began_at)",
        "since = known.began_at",
        ("tests/properties/test_proof.py", "tests/unit/sharder/core/test_shards.py", *LEASES),
    ),
    "STOPS_ARE_NO_GAP": Fault(
        "time that the leader's machine has missed proves no commits",
        "sharder.core.proven_time",
        "return replace(known, until=known.until - seconds)",
        "return known",
        ("tests/properties/test_proof.py",),
    ),
    "TWO_OF_ONE_NAME": Fault(
        "nothing moves on a name that two leases claim",
        "sharder.core.decisions",
        "if label in membership.ambiguous:",
        "if False:",
        ("tests/unit/sharder/core/test_decisions.py",),
    ),
    "STRANGERS_ARE_SHARDS": Fault(
        "a shard is available exactly when its lease says that it holds it",
        "shardsdk.protocol.leases",
        "return bool(holder) and holder == self.metadata.name",
        "return bool(holder)",
        ("tests/unit/sharder/core/test_membership.py", "tests/unit/sharder/core/test_shards.py"),
    ),
    # -- taking leases over ----------------------------------------------------
    "DELETED_IS_FREE": Fault(
        "a lease that was deleted counts as held until it would have run out",
        "sharder.core.observed",
        "return max((_end(gone.held, proven_since) for gone in vanished), default=None)",
        "return max((0.0 for gone in vanished), default=None)",
        OBSERVED,
        {"delete_lease": 30.0, "touch_work": 20.0},
    ),
    "LAST_SEEN_IS_LAST_RENEWED": Fault(
        "a lease that was renewed unseen before it was taken away counts as held from when that shows",
        "sharder.core.observed",
        "return held._replace(since=now) if unseen and says(known.lease) is Says.RIGHTFUL else held",
        "return held",
        OBSERVED,
    ),
    "UNKNOWN_IS_FREE": Fault(
        "a leader that never saw a missing lease waits the ring's longest duration",
        "sharder.core.observed",
        "else _end(Span(missing_since, longest_duration(others)), proven_since)",
        "else 0.0",
        (*OBSERVED, *LEASES),
        {"delete_lease": 30.0, "crash_leader": 20.0, "touch_work": 20.0},
    ),
    "CACHES_ARE_RIGHT": Fault(
        "a cache of leases that lists show to be behind is made anew",
        "sharder.cache.freshness",
        "        if behind:\n",
        "        if False:\n",
        ("tests/unit/sharder/cache/test_freshness.py",),
    ),
    "TAKE_WITH_NOBODY_READY": Fault(
        "a lease is acquired only while another shard can take the objects",
        "sharder.core.takeover",
        "Rule(NOBODY_READY, Act.WAIT, Why.ABANDONED),",
        "Rule(NOBODY_READY, Act.ACQUIRE, Why.ABANDONED),",
        TAKEOVER,
    ),
    "FOUND_IN_OUR_NAME": Fault(
        "a lease found in the sharder's name is no hold until this leader has renewed it",
        "sharder.core.takeover",
        "confirmed = facts.hold_until is not None and now < facts.hold_until",
        "confirmed = True",
        TAKEOVER,
    ),
    "SHARDERS_HOLD_FROM_THE_ANSWER": Fault(
        "the sharder's hold counts from before its write was sent",
        "sharder.takeover.lease_client",
        "record.hold.until, record.hold.missed = sent_at + usable_seconds(record.hold_length), missed",
        "record.hold.until, record.hold.missed = self._clock.monotonic() + 2 * record.hold_length, missed",
        LEASES,
    ),
    "ACQUIRE_ANY_VERSION": Fault(
        "a lease is acquired in the version that was seen",
        "sharder.takeover.lease_client",
        '                "resourceVersion": lease.metadata.resource_version,\n                # What',
        "                # What",
        LEASES,
    ),
    "PLACEHOLDERS_IN_SOME_NAMESPACES": Fault(
        "nothing moves off a name that has no Lease before it is held wherever a shard may start",
        "sharder.takeover.controller",
        "if self._placeholders.lack(snapshot, shard):",
        "if False:",
        LEASES,
    ),
    "GIVE_BACK_UNSETTLED": Fault(
        "a lease is given back when nothing that was sent under it can be executed any more",
        "sharder.takeover.lease_client",
        "                await self._api.writes_settled()",
        "                pass",
        LEASES,
    ),
    "GIVE_BACK_EARLY": Fault(
        "nothing more is sent under a hold that is about to be given back",
        "sharder.takeover.lease_client",
        "        record.drop()\n        try:\n            async with",
        "        try:\n            async with",
        LEASES,
    ),
    "GIVE_BACK_UNREAD": Fault(
        "a lease is given back when a consistent read shows no object with its label",
        "sharder.takeover.controller",
        "if step.why is Why.MOVED and not (lives_elsewhere(snapshot, shard) or await self._confirm_empty(key)):",
        "if False:",
        LEASES,
    ),
    "NEVER_GIVE_BACK": Fault(
        "a lease is given back when nothing has progressed for a while",
        "sharder.core.takeover",
        "            Rule(STALLED, Act.GIVE_BACK, Why.STALLED),\n",
        "",
        TAKEOVER,
    ),
    "GIVE_BACK_WHAT_WAS_TAKEN_BACK": Fault(
        "a lease that its shard has taken back is none that is held",
        "sharder.takeover.controller",
        "        if seen is not None and seen.lease.holder != SHARDER_HOLDER:\n            record.drop()\n",
        "",
        ("tests/unit/sharder/takeover/test_doubts.py",),
    ),
    # -- moving families -------------------------------------------------------
    "MOVE_WITHOUT_RENEWAL": Fault(
        "a lease is renewed between the drain of its owners and the read of their children",
        "sharder.placement.handover",
        "renewed = shard is None or await self._takeover.renew(shard)",
        "renewed = True",
        GROUPS,
    ),
    "ONE_RENEWAL_FOR_ALL": Fault(
        "a renewal lets those families go on whose shard's lease it has renewed",
        "sharder.placement.handover",
        "self._renewals.join(family.shard, family)",
        "self._renewals.join(None, family)",
        GROUPS,
    ),
    "NARROW_READ": Fault(
        "children are read wherever they may be",
        "sharder.placement.children",
        "return Selector(labels=not_in(labels.shard, {target})) if target is not None else Selector()",
        'return Selector(labels=labels.shard) if target is not None else Selector(labels="!" + labels.shard)',
        GROUPS,
    ),
    "WATCHES_ARE_COMPLETE": Fault(
        "the owner follows when all its children are known to be there, not when those are that watches show",
        "sharder.core.handover",
        "Transition(Step.AWAIT_WATCHES, Phase.KNOWN, Phase.UNKNOWN, needs=(TARGET_THERE,))",
        "Transition(Step.AWAIT_WATCHES, Phase.KNOWN, Phase.KNOWN, needs=(TARGET_THERE,))",
        (*ORDER, *GROUPS),
    ),
    "MOVE_UNDRAINED": Fault(
        "an owner is drained before anything of it moves",
        "sharder.core.handover",
        "Transition(Step.DRAIN_OWNER, Phase.DRAINED, needs=(MAY_TAKE,))",
        "Transition(Step.RENEW_FENCE, Phase.LET_GO, needs=(MAY_TAKE,))",
        (*ORDER, *GROUPS),
    ),
    "ANOTHER_TARGET": Fault(
        "a family keeps its target, or starts over from the children",
        "sharder.core.handover",
        "if kept is not None and kept in membership.available:",
        "if False:",
        GROUPS,
    ),
    "LAGGING_WATCH": Fault(
        "no family is begun by what is older than the leader's own write",
        "sharder.placement.expectations",
        "        if now - written_at < MAX_LAG_SECONDS:\n            return True",
        "        if now - written_at < MAX_LAG_SECONDS:\n            return False",
        ("tests/unit/sharder/placement/test_expectations.py", *GROUPS),
    ),
    "NO_DOUBTS": Fault(
        "an owner whose write is in doubt is read again before anything of it moves",
        "sharder.placement.expectations",
        "return uid in self._unread",
        "return False",
        ("tests/unit/sharder/placement/test_expectations.py", *GROUPS),
    ),
    "READ_BEFORE_SETTLED": Fault(
        "and that read begins when the write can no longer be executed",
        "sharder.placement.handover",
        "        await self._api.writes_settled()\n        same = await self._look_again(family)\n",
        "        same = await self._look_again(family)\n        await self._api.writes_settled()\n",
        GROUPS,
    ),
    "READ_AND_FORGET": Fault(
        "and what is older than that read begins no family",
        "sharder.placement.handover",
        "self._expected(family.key).wrote(family.meta, self._clock.monotonic())",
        "pass",
        GROUPS,
    ),
    "ONE_FOLLOWER_IS_ALL": Fault(
        "a family waits for all children of its owner that were being written one by one when it began",
        "sharder.placement.followers",
        "while any(follower.sent for",
        "if any(follower.sent for",
        FOLLOWERS,
    ),
    "FOLLOWERS_ARE_ANSWERED": Fault(
        "and for those without an answer until they can no longer be executed",
        "sharder.placement.followers",
        "            if follower.sent:\n                self.note_unanswered(uid, error)\n            raise\n",
        "            raise\n",
        FOLLOWERS,
    ),
    "PLACED_BY_OLD_SHARDS": Fault(
        "a label is written by the shards that there are when its turn has come",
        "sharder.placement.label_writer",
        "if self._members.membership != membership:",
        "if False:",
        GROUPS,
    ),
    "CHANGED_OWNER": Fault(
        "a family whose owner's labels have changed is decided anew",
        "sharder.placement.handover",
        "return all(family.meta.label(key) == before.label(key) for key in (shard, drain))",
        "return True",
        GROUPS,
    ),
    "STILL_DRAINING": Fault(
        "the owner's last patch takes the drain label off",
        "sharder.placement.handover",
        "family.key, family.resource, family.meta, target, clear_drain=True, in_family=True",
        "family.key, family.resource, family.meta, target, clear_drain=False, in_family=True",
        GROUPS,
    ),
    "TAKE_WITHOUT_HOLD": Fault(
        "what a shard has that is gone is taken under the hold on its lease",
        "sharder.placement.label_writer",
        "answer = await self._patch(resource, meta, patch, (lead.fence, self._hold_of(meta)), follower)",
        "answer = await self._patch(resource, meta, patch, (lead.fence,), follower)",
        (*LEASES, *GROUPS),
    ),
    "UNCONFIRMED_MOVES": Fault(
        "a family moves under the lead as it has just been confirmed",
        "sharder.placement.label_writer",
        "fences = (lead.fence, lead.confirmed) if confirmed else (lead.fence,)",
        "fences = (lead.fence,)",
        (*LEASES, *GROUPS),
    ),
    "BEGIN_BESIDE_ANOTHERS_WRITES": Fault(
        "a ring's first placement begins when nothing can be executed that one before it has sent",
        "sharder.placement.labels",
        "by an assignment before this one, too.\n        self._unsettled = True",
        "by an assignment before this one, too.\n        self._unsettled = False",
        EDITS,
    ),
    "FORGET_WRITES_AFTER_AN_ERROR": Fault(
        "a placement that has failed is begun anew when nothing can be executed that it has sent",
        "sharder.placement.labels",
        "self._ground = self._placement = None\n            self._unsettled = True\n",
        "self._ground = self._placement = None\n",
        EDITS,
    ),
    # -- going through everything ------------------------------------------------
    "SETTLED_TOO_EARLY": Fault(
        "a ring is settled by a pass that began when every replica knew its shards",
        "sharder.core.resync",
        "lambda end: end.began < end.state.settles_at",
        "lambda end: False",
        RESYNC,
    ),
    "NO_PASS_OWED": Fault(
        "everything is gone through once more when objects have changed hands",
        "sharder.core.resync",
        "Event.MOVING: Change((UNCLEAN, OWED)),",
        "Event.MOVING: Change(()),",
        RESYNC,
    ),
    "NAMESPACES_STAND_STILL": Fault(
        "what has no shard is watched in every namespace that the ring covers, also in those that come",
        "sharder.placement.placement",
        "        self.backlog.informers.follow()\n        if not gone:",
        "        if not gone:",
        NAMESPACES,
    ),
    "MANY_NAMESPACES": Fault(
        "a ring of many namespaces has one watch of them",
        "sharder.backlog.informers",
        "if namespaces is not None and len(namespaces) <= MAX_NAMESPACES:",
        "if namespaces is not None:",
        NAMESPACES,
    ),
    "LISTED_ANEW": Fault(
        "a namespace that comes or leaves has no other listed anew",
        "sharder.backlog.informers",
        "if before is None or (before.selector, before.scope) != (wanted.selector, wanted.scope):",
        "if before is None or before != wanted:",
        NAMESPACES,
    ),
    "GIVEN_AFTER_ITS_NAMESPACE_LEFT": Fault(
        "an owner whose namespace leaves the ring while its children move is given to nobody",
        "sharder.core.handover",
        "needs=(TARGET_THERE, MAY_TAKE, IN_SCOPE)",
        "needs=(TARGET_THERE, MAY_TAKE)",
        ("tests/unit/sharder/placement/test_namespaces_left.py",),
    ),
    "CHILDREN_LET_GO_MEANWHILE": Fault(
        "a child stays while its owner's family is under way, wherever its namespace goes",
        "sharder.placement.followers",
        "follower = Follower(overtaken=uid in self._moving)",
        "follower = Follower()",
        ("tests/unit/sharder/placement/test_namespaces_left.py",),
    ),
    "NAMESPACES_FORGOTTEN": Fault(
        "a namespace that came is gone through also by the placement that an edit begins anew",
        "sharder.placement.placement",
        "for namespace in sorted(self.backlog.unsettled_namespaces):",
        "for namespace in ():",
        MEANWHILE,
    ),
    "NAMESPACES_UNHEARD": Fault(
        "a namespace that comes while the placement is made anew is gone through",
        "sharder.placement.labels",
        "self._ground.backlog.unsettled_namespaces.add(name)",
        "pass",
        MEANWHILE,
    ),
    "NAMESPACES_ONCE": Fault(
        "a namespace that came is gone through until nothing is found there",
        "sharder.core.resync",
        "event = Event.FOUND_IN_NAMESPACES if found else Event.NAMESPACES_CLEAN",
        "event = Event.NAMESPACES_CLEAN",
        MEANWHILE,
    ),
    "CHILDREN_BY_THEIR_NAMESPACE": Fault(
        "what a cluster-scoped owner controls is where that is, in whatever namespace",
        "sharder.backlog.scope",
        "return resource.subject.owners_stay or self.covers(",
        "return self.covers(",
        CLUSTER_SCOPED,
    ),
    "PLACE_BY_WHAT_WAS": Fault(
        "nothing is placed by a ring that cannot be used since it was edited",
        "sharder.rings.ring_controller",
        "            self._stop_placing_another()\n",
        "            pass\n",
        UNUSABLE,
    ),
    "SETTLED_WITHOUT_WHAT_WAITS": Fault(
        "a ring is not settled while something that it lists waits for rights",
        "sharder.rings.status",
        "settled = summary.settled and unresolved is None and not summary.waiting",
        "settled = summary.settled and unresolved is None",
        ("tests/unit/sharder/rings/test_granted.py",),
    ),
    "LEFT_WITHOUT_WEBHOOK": Fault(
        "a ring's webhook is called though nobody could tell at first whether there is a configuration for it",
        "sharder.rings.ring_controller",
        "        if ring.unanswered and exists is None:\n            self._queue.add_after(self.name, LOOK_SECONDS)\n",
        "        if ring.unanswered and exists is None:\n            pass\n",
        ("tests/unit/sharder/rings/test_webhook_unwatched.py",),
    ),
}
