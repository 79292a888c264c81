"""Faults planted into how one object is decided, by placement and by the webhook."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

#: Tests that look for a fault, by what they are about.
DECISIONS: Final = ("tests/unit/sharder/core/test_decisions.py",)
ADMISSION: Final = ("tests/unit/sharder/core/test_admission.py", "tests/properties/test_admission.py")

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
}
