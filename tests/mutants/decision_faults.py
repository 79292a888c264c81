"""Faults planted into how one object is decided, by placement and by the webhook."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

#: Tests that look for a fault, by what they are about.
DECISIONS: Final = ("tests/unit/sharder/core/test_decisions.py",)
SHARDS: Final = ("tests/unit/sharder/core/test_membership.py", "tests/unit/sharder/takeover/test_leaving.py")
HISTORIES: Final = ("tests/unit/sharder/core/test_liveness.py", "tests/unit/sharder/takeover/test_leaving.py")
ADMISSION: Final = ("tests/unit/sharder/core/test_admission.py", "tests/properties/test_admission.py")
WEBHOOK: Final = ("tests/unit/sharder/webhook/test_app.py", "tests/unit/sharder/webhook/test_limits.py")

DECISION_FAULTS: Final[dict[str, Fault]] = {
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
    "PLACE_WITH_WHO_LEAVES": Fault(
        "a shard that is about to leave is given nothing, and gives away what it has",
        "sharder.core.membership",
        "staying = available - leaving or available",
        "staying = available",
        SHARDS,
    ),
    "DRAIN_TO_WHO_LEAVES": Fault(
        "nothing is drained toward a shard that is about to leave, where all are",
        "sharder.core.membership",
        "if shard in self.leaving:",
        "if False:",
        SHARDS,
    ),
    "PLACE_WITH_WHO_HAS_LEFT": Fault(
        "what nobody has goes past a shard of which no process is at work",
        "sharder.core.membership",
        "silent = silent | left",
        "silent = silent",
        SHARDS,
    ),
    "OVERLOOK_WHO_LEAVES": Fault(
        "that a shard is about to leave, or has left, is found out at once",
        "sharder.core.membership",
        "lease.main_resources, lease.leaving, lease.left,",
        "lease.main_resources,",
        SHARDS,
    ),
    "OVERLOOK_WHO_IS_BACK_IN_TIME": Fault(
        "a process that goes on with its shard's lease that nobody gave back comes after a crash",
        "sharder.core.liveness",
        "lease.holder == SHARDER_HOLDER or _goes_on(before, lease)",
        "lease.holder == SHARDER_HOLDER",
        HISTORIES,
    ),
    "OVERLOOK_WHO_FAILS": Fault(
        "one that says that it has failed has crashed",
        "sharder.core.liveness",
        "return lease.ended_in_failure or ",
        "return ",
        HISTORIES,
    ),
    "BLAME_WHO_GAVE_BACK": Fault(
        "one that was given back meanwhile, which was not observed, has not",
        "sharder.core.liveness",
        "return not same and before.spec.lease_transitions == lease.spec.lease_transitions",
        "return not same",
        HISTORIES,
    ),
    "DECIDE_BY_WHAT_WAS_KNOWN": Fault(
        "who begins to lead after it was cut off decides nothing before it has heard of leases and rings again",
        "sharder.rings.leader",
        "        await self._cache.until_heard(HEAR_SECONDS)\n",
        "",
        ("tests/unit/sharder/takeover/test_leaving.py",),
    ),
    "NAMESPACES_FORGOTTEN_WITHOUT_SHARDS": Fault(
        "a namespace that came while no shard was there is gone through once one is",
        "sharder.core.resync",
        "state.left_out_of | state.again | state.unsure",
        "state.left_out_of | state.again",
        ("tests/unit/sharder/core/test_resync.py", "tests/unit/sharder/placement/test_namespaces_watched.py"),
    ),
    "ALL_GONE_THROUGH_FOR_A_NAMESPACE": Fault(
        "a namespace that comes or leaves has nothing gone through but what is in it",
        "sharder.core.resync",
        "Event.NAMESPACE_CHANGED: Change((ASKED, UNSURE, LATER)),",
        "Event.NAMESPACE_CHANGED: Change((ASKED, UNSURE, LATER, DEEP_SOON)),",
        ("tests/unit/sharder/core/test_resync.py", "tests/unit/sharder/placement/test_namespaces_watched.py"),
    ),
    "NEVER_GONE_THROUGH_ONCE_MORE": Fault(
        "what replicas admitted that did not know a namespace's change yet is looked for when they do",
        "sharder.core.resync",
        "Event.NAMESPACE_CHANGED: Change((ASKED, UNSURE, LATER)),",
        "Event.NAMESPACE_CHANGED: Change((ASKED, UNSURE)),",
        ("tests/unit/sharder/core/test_resync.py", "tests/unit/sharder/placement/test_namespaces_watched.py"),
    ),
    "PLACED_BY_A_FORMER_KIND": Fault(
        "an object of what a resource has become is not placed by the key of what it was",
        "sharder.core.admission",
        "if request.kind.kind and request.kind.kind != known.kind:",
        "if False:",
        ("tests/unit/sharder/core/test_admission_kinds.py",),
    ),
    "OLDER_COPIES_BY_NUMBER_ALONE": Fault(
        "an older copy of a lease that was deleted meanwhile gives nothing of its shard away",
        "sharder.core.observed",
        "return fewer or before",
        "return fewer",
        ("tests/unit/sharder/takeover/test_restored_leases.py",),
    ),
    "GO_THROUGH_ALL_AFTER_EACH_SILENCE": Fault(
        "shards that renew irregularly do not have all objects gone through all the time",
        "sharder.core.resync",
        "if event is Event.SILENCE_ENDED and now < state.silence_at:",
        "if False:",
        ("tests/unit/sharder/core/test_resync.py", "tests/unit/sharder/takeover/test_leaving.py"),
    ),
    "FOLLOW_CHILDREN_TO_WHO_LEAVES": Fault(
        "a family on its way does not go to a shard that is about to leave by now",
        "sharder.core.handover",
        "facts.staying == facts.chosen_among",
        "facts.available == facts.chosen_among",
        ("tests/unit/sharder/core/test_handover.py",),
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
        ("tests/unit/sharder/core/test_patches.py",),
    ),
    "FROZEN_KEYS": Fault(
        "the format of keys is frozen",
        "sharder.core.keys",
        'return f"{group}/{kind}/{namespace}/{name}"',
        'return f"{group}/{kind}/{name}/{namespace}"',
        ("tests/unit/sharder/core/test_keys.py",),
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
    "STRANDED_UNTOLD": Fault(
        "the lease of a shard that is gone is looked at as an object is found that names it",
        "sharder.placement.stranded",
        "if kind is not Pending.STRANDED:",
        "if True:",
        focus={"name_the_gone": 20.0},
    ),
    "PROVEN_FROM_WHEN_SHOWN": Fault(
        "a watch that has shown a patch has shown all from before that was sent, and nothing later",
        "sharder.placement.families",
        "max(patch.began, self._patched_at.get(patch.child, patch.began))",
        "self._clock.monotonic()",
        ("tests/unit/sharder/placement/test_transit.py",),
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
        "sharder.core.decisions",
        'return found is not None and uid in ("", found.uid)',
        "return found is not None",
        ADMISSION,
    ),
    "FAIL_CLOSED": Fault(
        "a webhook that cannot be asked lets the request pass",
        "sharder.core.webhookconfig",
        '"failurePolicy": "Ignore"',
        '"failurePolicy": "Fail"',
        ("tests/unit/sharder/core/test_webhookconfig.py",),
    ),
    "TAKE_NO_ACKNOWLEDGEMENT": Fault(
        "the webhook lets an acknowledgement take the labels off",
        "sharder.webhook.app",
        "stale=view.stale, body=body,",
        "stale=view.stale,",
        WEBHOOK,
    ),
    "ANYBODY_MOVES_OBJECTS": Fault(
        "from a shard that is there only the sharder moves an object",
        "sharder.webhook.app",
        ", account=self._account()",
        "",
        WEBHOOK,
    ),
    "ANSWERED_REVIEWS_COUNT": Fault(
        "what was answered takes no room from what is asked later",
        "sharder.webhook.app",
        "                self._bodies.release(body)\n",
        "                pass\n",
        WEBHOOK,
    ),
}
