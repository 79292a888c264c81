"""Faults planted into what operators are written with: apply, prune, status, finalizers, and their webhooks."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

#: Tests that look for a fault, by what they are about.
APPLY: Final = ("tests/unit/shardsdk/operator/test_apply.py", "tests/properties/test_apply.py")
ENDINGS: Final = ("tests/unit/shardsdk/operator/test_endings.py",)
STATUS: Final = ("tests/unit/shardsdk/operator/test_status.py",)
WEBHOOK: Final = ("tests/unit/shardsdk/admission/test_webhook.py",)
PATCHING: Final = ("tests/unit/shardsdk/admission/test_patching.py",)

OPERATOR_FAULTS: Final[dict[str, Fault]] = {
    # -- apply ---------------------------------------------------------------
    "APPLY_UNFENCED": Fault(
        "an apply asks the lease, as every write does",
        "shardsdk.kube.api",
        "                tuple(fences),\n                model,\n"
        "                _wants_metadata(model, metadata_only),",
        "                tuple(fences) if kind is not PatchKind.APPLY else None,\n                model,\n"
        "                _wants_metadata(model, metadata_only),",
        ("tests/unit/shardsdk/kube/test_fencing.py",),
    ),
    "APPLIED_ONCE_FOR_ALL": Fault(
        "a child that somebody else has changed is applied again",
        "shardsdk.reconcile.applied",
        "if known.generation != metadata.generation or known.state != state_of(seen):",
        "if False:",
        APPLY,
    ),
    "APPLIED_WHATEVER_IS_SENT": Fault(
        "a child is applied again when something else is to be applied",
        "shardsdk.reconcile.applied",
        "if known is None or known.sent != sent:",
        "if known is None:",
        APPLY,
    ),
    "APPLIES_OUTLIVE_THE_OBJECT": Fault(
        "what was applied for an object is forgotten when that leaves the shard",
        "shardsdk.reconcile.applied",
        "        self._records.pop(uid, None)\n",
        "        return\n",
        APPLY,
    ),
    "APPLY_WITHOUT_OWNER": Fault(
        "who applies a child becomes its controller",
        "shardsdk.reconcile.applying",
        "return set_controller_reference(main, owner, resource, whole)",
        "return whole",
        APPLY,
    ),
    "APPLY_WHAT_IS_ANOTHERS": Fault(
        "a child that another object controls is not applied",
        "shardsdk.reconcile.applying",
        "if there is None or there.uid == owner.uid:",
        "if True:",
        APPLY,
    ),
    # -- prune ----------------------------------------------------------------
    "PRUNE_WHAT_WAS_APPLIED": Fault(
        "what this reconcile has applied is not pruned",
        "shardsdk.operator.pruning",
        "if not gone and (group, request) not in named and await",
        "if not gone and await",
        ENDINGS,
    ),
    "PRUNE_WHAT_OTHERS_MADE": Fault(
        "what another controller made for the same object is not pruned",
        "shardsdk.operator.pruning",
        "if not ours or context.field_owner not in fields or found",
        "if not ours or found",
        ENDINGS,
    ),
    "PRUNE_HALFWAY": Fault(
        "a reconcile that asks to be called again prunes nothing",
        "shardsdk.operator.attempt",
        "if self._pruned and not isinstance(outcome, Requeue | RequeueAfter):",
        "if self._pruned:",
        ENDINGS,
    ),
    # -- finalizers, failures, status --------------------------------------------
    "FINALIZER_AFTERWARDS": Fault(
        "an object has its finalizer before anything is made for it",
        "shardsdk.operator.attempt",
        "            await add_finalizer(context, self._finalizer)\n        version = context.version\n"
        "        returned = await call(self._function)\n",
        "            pass\n        version = context.version\n"
        "        returned = await call(self._function)\n        if self._clean_up is not None:\n"
        "            await add_finalizer(context, self._finalizer)\n",
        ENDINGS,
    ),
    "GONE_BEFORE_CLEANED_UP": Fault(
        "an object stays until its clean-up says that it is done",
        "shardsdk.operator.attempt",
        "                return again  # not done yet",
        "                pass",
        ENDINGS,
    ),
    "PERMANENT_FOR_EVER": Fault(
        "what failed for good is tried again once its spec has changed",
        "shardsdk.operator.failures",
        "return known.error if known is not None and known.spec == _spec_of(thing) else None",
        "return known.error if known is not None else None",
        ENDINGS,
    ),
    "STATUS_OF_AN_OLDER_GENERATION": Fault(
        "a status tells the generation that was reconciled",
        "shardsdk.operator.status",
        "    generation = context.metadata.generation\n",
        "    generation = context.metadata.generation - 1\n",
        STATUS,
    ),
    "STATUS_FORGETS_CONDITIONS": Fault(
        "conditions of which the returned status does not speak stay",
        "shardsdk.operator.status",
        'there = before.get("conditions") or []',
        "there = []",
        STATUS,
    ),
    # -- webhooks ----------------------------------------------------------------
    "FAILURES_ARE_ALLOWED": Fault(
        "a request whose webhook failed is refused, unless its failures are to be ignored",
        "shardsdk.admission.webhook",
        '        if ignored or self.on_failure == "Ignore":\n',
        "        if True:\n",
        WEBHOOK,
    ),
    "DENIALS_ARE_FAILURES": Fault(
        "what a function denies is refused, also by one whose failures are ignored",
        "shardsdk.admission.webhook",
        "return self._denied(request, denied)",
        "return self._failed(request, str(denied), denied)",
        WEBHOOK,
    ),
    "UNFIT_IS_ALLOWED": Fault(
        "an object that does not fit its class is refused without asking the function",
        "shardsdk.admission.webhook",
        'if self.on_failure == "Ignore" or request.operation == Operation.DELETE:',
        "if True:",
        WEBHOOK,
    ),
    "PATCH_OF_WHAT_IS_STORED": Fault(
        "the patch is one of the object that came, not of the one that is stored",
        "shardsdk.admission.webhook",
        "there = msgspec.json.decode(request.object)",
        "there = msgspec.json.decode(request.old_object) or msgspec.json.decode(request.object)",
        WEBHOOK,
    ),
    "PATCH_FORGETS_THE_UNKNOWN": Fault(
        "fields that the class does not know stay as they came",
        "shardsdk.admission.patching",
        "for name, value in there.items() if name in after or name not in before}",
        "for name, value in there.items() if name in after}",
        (*PATCHING, *WEBHOOK),
    ),
}
