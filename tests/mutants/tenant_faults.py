"""Faults in what holds against whoever may write objects of a namespace, and in what becomes of what leaves unseen."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

CROWDS: Final = ("tests/unit/sharder/takeover/test_many_names.py",)
RETURNS: Final = ("tests/unit/shardsdk/reconcile/test_unseen_returns.py",)

TENANT_FAULTS: Final[dict[str, Fault]] = {
    "CHILDREN_BY_UID_ALONE": Fault(
        "who names an owner by its uid from another namespace is no child of it, to the sharder",
        "sharder.backlog.objects",
        "return child.subject.key_of(meta) == resource_key(main.resource, owner.namespace, owner.name)",
        "return True",
        ("tests/unit/sharder/placement/test_foreign_children.py",),
    ),
    "CONTROLLED_BY_UID_ALONE": Fault(
        "who names an owner by its uid from another namespace is none of the children that a reconcile is shown",
        "shardsdk.cache.objects",
        '(reference.kind, reference.group) == (main.kind, main.group) and owner.namespace in ("", metadata.namespace)',
        "True",
        ("tests/unit/shardsdk/reconcile/test_foreign_children.py",),
    ),
    "NAMESPACE_OF_AN_OWNER_AS_DECLARED": Fault(
        "an owner without a namespace has its children, whatever its program says of its resource",
        "shardsdk.cache.objects",
        'owner.namespace in ("", metadata.namespace)',
        'owner.namespace == (metadata.namespace if main.namespaced else "")',
        ("tests/unit/shardsdk/reconcile/test_foreign_children.py",),
    ),
    "OWNERS_NAMES_OF_ANY_LENGTH": Fault(
        "no owner is looked for of which a reference says more than there is of any",
        "shardsdk.protocol.objects",
        'self.name != "" and said <= MAX_REFERENCE',
        'self.name != ""',
        ("tests/unit/sharder/core/test_keys.py",),
    ),
    "NO_WRITE_OF_A_STATUS_IS_LOOKED_AT": Fault(
        "a shard label that a write of the status takes from a living shard is put back",
        "sharder.core.admission",
        "if request.sub_resource and not _may_take_off(request, ring.spec.labels):",
        "if request.sub_resource:",
        ("tests/unit/sharder/core/test_admission_kinds.py",),
    ),
    "WAIT_FOR_CHILDREN_BY_UID_ALONE": Fault(
        "an owner does not wait for the label of who names it by its uid from another namespace",
        "shardsdk.reconcile.barrier",
        "return owner if owner is not None and is_controlled(child, main, owner, controller.uid) else None",
        "return owner",
        ("tests/unit/shardsdk/reconcile/test_foreign_children.py",),
    ),
    "KOPF_BELIEVES_WHAT_IS_DECLARED": Fault(
        "a child whose owner's type is served later waits until it is known whether its owner has a namespace",
        "shardsdk.contrib.kopf_families",
        "self._unsure = set(self._main)",
        "self._unsure = set[GroupResource]()",
        ("tests/unit/shardsdk/contrib/test_kopf_foreign_children.py",),
    ),
    "KOPF_FAMILIES_BY_UID_ALONE": Fault(
        "what a child says of its owner's uid counts in its own namespace alone",
        "shardsdk.contrib.kopf_families",
        "        who = main.group_resource, request, uid\n",
        '        who = main.group_resource, Request("", ""), uid\n',
        ("tests/unit/shardsdk/contrib/test_kopf_foreign_children.py",),
    ),
    "A_LEASE_FOR_EACH_NAME": Fault(
        "few names have placeholders for the objects of one namespace",
        "sharder.takeover.placeholders",
        "            if self._names_in[place] < MAX_NAMES:",
        "            if True:",
        CROWDS,
    ),
    "CROWDS_ARE_EVERYBODYS": Fault(
        "a crowd of names in one namespace holds up no other",
        "sharder.takeover.placeholders",
        "            if self._names_in[place] < MAX_NAMES:",
        "            if len(self._made_for) < MAX_NAMES:",
        CROWDS,
    ),
    "MADE_UP_NAMES_WERE_SHARDS": Fault(
        "a name that the sharder alone had a Lease for waits as before when it comes again",
        "sharder.takeover.placeholders",
        "not all(gone.placeholder for gone in snapshot.vanished_named(shard))",
        "snapshot.vanished_named(shard)",
        CROWDS,
    ),
    "SHARDS_ARE_IN_THE_CROWD": Fault(
        "a name that a shard has had does not wait in a crowd",
        "sharder.takeover.placeholders",
        "if not all(gone.placeholder for gone in snapshot.vanished_named(shard)):",
        "if False:",
        CROWDS,
    ),
    "START_OVER_WITH_EACH_CHANGE": Fault(
        "an owner that changes more often than children can be read is placed",
        "sharder.core.handover",
        "    if gathered and not unread:",
        "    if False:",
        ("tests/unit/sharder/placement/test_handover.py", "tests/unit/sharder/core/test_handover.py"),
    ),
    "UNSEEN_SHARDS_ARE_AWAITED_ANEW": Fault(
        "a name of which no Lease is known is waited for once, however often shards come and go",
        "sharder.takeover.controller",
        "elif seen is None and facts.work_left is False:",
        "elif seen is None and not facts.work_left:",
        ("tests/unit/sharder/placement/test_handover.py",),
    ),
    "PASSES_DO_NOT_REST": Fault(
        "what changes hands again and again has everything gone through for a tenth of the time",
        "sharder.core.resync",
        "_due_at(state, max(now + state.pause, state.rests_until))",
        "_due_at(state, now + state.pause)",
        ("tests/unit/sharder/placement/test_resync_pages.py",),
    ),
    "CHILDREN_OF_BEFORE_A_DRAIN": Fault(
        "what is given back has its children listed anew: it may have been away unseen",
        "shardsdk.reconcile.handlers",
        "if (given_back or delta.kind is EventKind.ADDED) and",
        "if delta.kind is EventKind.ADDED and",
        RETURNS,
    ),
    "FOR_GOOD_OUTLIVES_A_DRAIN": Fault(
        "what failed for good is tried again by the first that is shown after a drain",
        "shardsdk.operator.attempt",
        "for each in (delta.object, delta.old) if each is not None]",
        "for each in (delta.object,)]",
        RETURNS,
    ),
    "THE_UNREADABLE_LEAVE_THEIR_RECONCILE": Fault(
        "a reconcile ends with its object also if that cannot be read any more",
        "shardsdk.reconcile.handlers",
        "        if before is not None and (unfit.gone or unfit.metadata.uid != before.metadata.uid):",
        "        if False:",
        ("tests/unit/shardsdk/reconcile/test_departures.py",),
    ),
    "ERRORS_OUTLIVE_THEIR_OBJECTS": Fault(
        "nothing is known any more of an object that failed for good as it went",
        "shardsdk.reconcile.controller",
        'ended.error if there else ""',
        "ended.error",
        ("tests/unit/shardsdk/reconcile/test_departures.py", "tests/unit/shardsdk/reconcile/test_sharded.py"),
    ),
    "ONE_UNANSWERED_WATCH_LOSES_ITS_PLACE": Fault(
        "an API server that is slow to accept watches now and then has nothing listed",
        "shardsdk.kube.streams",
        "return before and self._unanswered",
        "return self._unanswered",
        ("tests/unit/shardsdk/kube/test_initialevents.py",),
    ),
    "DENIED_PATCHES_ARE_REPEATED": Fault(
        "what a webhook denies of a patch that kopf has kept holds up no drain",
        "shardsdk.contrib.kopf_drains",
        '_impatient(given["settings"])',
        'given["settings"]',
        ("tests/unit/shardsdk/contrib/test_kopf_drains.py",),
    ),
    "DECIDE_ABOUT_ALL_FOR_EACH_THAT_COMES": Fault(
        "a shard that comes is no reason to decide about all that just go on",
        "sharder.takeover.facts",
        "            or not record.ready\n",
        "            or True\n",
        ("tests/unit/sharder/takeover/test_many_leases.py",),
    ),
    "SLEEP_OVER_WHO_IS_READY_AGAIN": Fault(
        "what was remembered of a shard that was not ready ends once it is, though its lease shows that already",
        "sharder.takeover.facts",
        "            or not record.ready\n",
        "",
        ("tests/unit/sharder/takeover/test_spared.py",),
    ),
    "JUDGE_ALL_WHILE_TIME_IS_UNPROVEN": Fault(
        "a leader that is late does not judge all leases for each renewal of any",
        "sharder.takeover.states",
        "now + UNPROVEN_SECONDS",
        "now",
        ("tests/unit/sharder/takeover/test_many_leases.py",),
    ),
    "REMEMBER_WHO_COULD_NOT_BE_MOVED": Fault(
        "an owner that is gone is held up no more",
        "sharder.placement.reconciler",
        "        self._handovers.forget(key)\n",
        "",
        ("tests/unit/sharder/placement/test_forgotten.py",),
    ),
    "PAGES_STAY_SMALL": Fault(
        "a few large objects make no small pages of all that come after them",
        "shardsdk.kube.reading",
        "limit = min(limit * SMALLER_TIMES, options.limit or PAGE_OBJECTS)",
        "pass",
        ("tests/unit/shardsdk/kube/test_pages.py",),
    ),
    "KOPF_BELIEVES_A_LATE_ANSWER": Fault(
        "what an event has told of an owner's scope outweighs an answer that comes later",
        "shardsdk.contrib.kopf_families",
        "        if main.group_resource not in self._unsure:\n            return True",
        "        if False:\n            return True",
        ("tests/unit/shardsdk/contrib/test_kopf_foreign_children.py",),
    ),
    "STATUS_OF_CUSTOM_RESOURCES": Fault(
        "nobody is asked about a write of a custom resource's status",
        "sharder.core.webhookconfig",
        'return domain in ("", *_BUILT_IN_DOMAINS)',
        "return True",
        ("tests/unit/sharder/core/test_webhookconfig.py",),
    ),
}
