"""Conditions: what a controller says about an object, in the form that `kubectl wait` understands.

    await set_conditions(context, Condition("Ready", ConditionStatus.TRUE, "Made", "the ConfigMap is there"))

Guarantees (tests/unit/shardsdk/objects/test_conditions.py): `lastTransitionTime` moves only when
the status does; conditions of other types stay, because the write is
conditional on the version that this reconcile knows (else Conflict, and it is
tried again); what changes nothing is not written.

Refuses: to write outside `status`; the resource needs a status subresource.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shardsdk.cache.objects import metadata_of
from shardsdk.kinds.conditions import Condition, merge_conditions
from shardsdk.kinds.wire import encode, fields_sent
from shardsdk.reconcile.context import Context


class _Status(msgspec.Struct, frozen=True):
    conditions: list[dict[str, Any]] | None = None


class _Conditioned(msgspec.Struct, frozen=True):
    status: _Status = _Status()


def find_condition(thing: object, condition_type: str) -> Condition | None:
    """The condition of this type on an object (a dict, or a model with `status.conditions`); `None`: there is none.

    Raises: ValidationError for one without a status, or which has something else in its fields.
    """
    shown = part_of(part_of(thing, "status"), "conditions") or ()
    found = next((each for each in shown if part_of(each, "type") == condition_type), None)
    if found is None:
        return None
    named = _by_wire_names(found)
    names = zip(Condition.__struct_fields__, Condition.__struct_encode_fields__, strict=True)
    fields = {sent: named.get(sent, getattr(found, name, None)) for name, sent in names}
    written = encode({sent: value for sent, value in fields.items() if value is not None})
    return msgspec.convert(written, Condition, strict=False)


async def set_conditions(context: Context[Any], *wanted: Condition) -> bool:
    """Set these conditions on the reconciled object, in one patch of its status; `False`: they are there already.

    `observed_generation` is that of the object as this reconcile read it, unless
    a condition says otherwise.

    Where the model does not show the conditions whole, they are read first.

    Raises: Conflict, NotFound (no status subresource, or no object).
    """
    # As the cache has it: `context.object` is the user's to change.
    cached = context.cache(context.main).peek(context.request)
    known = cached is not None and metadata_of(cached).resource_version == context.version
    there = _shown(cached) if known else None
    if there is None:
        there = await _read(context)
    generation = context.metadata.generation
    merged = merge_conditions(there, wanted, generation=generation, now=context.clock.now())
    if merged == list(there):
        return False
    body = {"metadata": {"resourceVersion": context.version}, "status": {"conditions": merged}}
    name, namespace = context.request.name, context.request.namespace or None
    made = await context.api.patch(context.main, name, namespace, body, subresource="status")
    context.metadata = made.metadata
    return True


async def _read(context: Context[Any]) -> list[dict[str, Any]]:
    """The conditions as the API server has them now; `list` is permission enough."""
    found = await context.api.find(context.main, context.name, context.namespace or None, model=_Conditioned)
    return [] if found is None else list(found.status.conditions or ())


def _shown(thing: object) -> list[dict[str, Any]] | None:
    """The conditions that an object carries, whole; `None`: its model does not show them (whole)."""
    if isinstance(thing, dict):
        return list((thing.get("status") or {}).get("conditions") or [])
    if not hasattr(thing, "status"):
        return None
    conditions = getattr(thing.status, "conditions", None) if thing.status is not None else []
    if conditions is None:
        return [] if hasattr(thing.status, "conditions") else None
    if not all(isinstance(each, dict | Condition) for each in conditions):
        return None
    return [each if isinstance(each, dict) else _fields(each) for each in conditions]


def part_of(thing: object, name: str) -> Any:
    """A field of an object or a mapping; `None` where it has none."""
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)


def _by_wire_names(condition: object) -> dict[str, Any]:
    """What a condition has by the names that its class gives its fields on the wire; nothing, if it gives none."""
    try:
        sent = fields_sent(condition)
    except NotImplementedError:
        return {}
    return sent if isinstance(sent, dict) else {}


def _fields(condition: dict[str, Any] | msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(condition)
    return {name: value for name, value in fields.items() if value is not None}
