"""Status by return value: what a reconcile returned becomes one conditional patch, or none; so does that it gave up.

Guarantees (tests/unit/shardsdk/operator/test_status.py): what the model of the
status does not know stays; of conditions those of other types stay, and
`lastTransitionTime` moves only when a condition's status does; what is there
already is not written, where what the reconcile itself has written is there,
too; what somebody wrote meanwhile answers Conflict, and the object is
reconciled again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from shardsdk.kinds import Kind
from shardsdk.kinds.conditions import Condition, merge_conditions
from shardsdk.kinds.wire import written_out
from shardsdk.reconcile.context import Context

K = TypeVar("K", bound=Kind)


def cached_object(context: Context[K]) -> K | None:
    """The object as the cache has it: `context.object` is the user's to change."""
    found: K | None = context.cache(context.main).peek(context.request)
    return found


async def write_status(context: Context[Any], returned: Any, *, observes: bool) -> bool:
    """Have the object's status be what was `returned`; `False`: it is already.

    `observes`: its `observedGeneration` is the generation that was reconciled, whatever was returned; else only where
    none was.

    Raises: Conflict, NotFound (no object, or a kind without the status subresource).
    """
    before = _written(await _as_known(context))
    after = _complete(context, before, returned, observes=observes)
    if after == before:
        return False
    # The first time also what has its default value: columns of `kubectl get` show it.
    await _send(context, difference(before if any(before.values()) else {}, after))
    return True


async def write_failure(context: Context[Any], failed: Sequence[Condition], *, observes: bool) -> bool:
    """Have the object's status say by these conditions how it `failed`; `False`: it does already.

    `observes`: and by its `observedGeneration` that this is of the generation that was reconciled.

    Raises: Conflict, NotFound (no object, or a kind without the status subresource).
    """
    before = await _with_whole_conditions(context)
    generation, after = context.metadata.generation, dict(before)
    if failed:
        known = before.get("conditions") or []
        after["conditions"] = merge_conditions(known, failed, generation=generation, now=context.clock.now())
    # A status that is not there may need more than this to be one.
    if observes and after:
        after["observedGeneration"] = generation
    if after == before:
        return False
    await _send(context, difference(before, after))
    return True


async def take_back_failure(context: Context[Any], failed: Condition) -> bool:
    """Have the object's status not say any more that it `failed`; `False`: it does not, or not as it was written.

    Raises: Conflict, NotFound (no object, or a kind without the status subresource).
    """
    before = await _with_whole_conditions(context)
    written = {"type": failed.type, "status": str(failed.status), "reason": failed.reason, "message": failed.message}
    known = before.get("conditions") or []
    kept = [each for each in known if {name: each.get(name, "") for name in written} != written]
    if len(kept) == len(known):
        return False
    await _send(context, {"conditions": kept})
    return True


async def _with_whole_conditions(context: Context[Any]) -> dict[str, Any]:
    """The object's status as it is on the wire; a class of the user's need not show conditions whole."""
    there = await _as_known(context)
    conditions = getattr(getattr(there, "status", None), "conditions", None) or ()
    if all(isinstance(each, Condition | dict) for each in conditions):
        return _written(there)
    # They are written as one list.
    found = await context.api.find(context.main, context.name, context.namespace or None, model=dict)
    return (found or {}).get("status") or {}


async def _send(context: Context[Any], changes: dict[str, Any]) -> None:
    name, namespace = context.name, context.namespace or None
    made = await context.api.patch(context.main, name, namespace, {"status": changes}, subresource="status")
    context.metadata = made.metadata


def _written(thing: Any) -> dict[str, Any]:
    """An object's status as it is on the wire; empty: it has none."""
    there = getattr(thing, "status", None)
    return {} if there is None else written_out(there)


async def _as_known(context: Context[K]) -> K | None:
    """The object at the version that the reconcile knows: the cache may not show yet what that has written itself."""
    cached = cached_object(context)
    if cached is not None and cached.metadata.resource_version == context.version:
        return cached
    found: K | None = await context.api.find(
        context.main, context.name, context.namespace or None, model=context.cache(context.main).model
    )
    return found


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that makes `after` of `before`.

    >>> difference({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2, "e": 4}})
    {'a': None, 'b': {'d': None, 'e': 4}}
    """
    changes: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        there = before.get(name)
        if isinstance(value, dict) and isinstance(there, dict):
            inner = difference(there, value)
            if inner:
                changes[name] = inner
        elif name not in before or there != value:
            changes[name] = value
    return changes


def _complete(context: Context[Any], before: dict[str, Any], returned: Any, *, observes: bool) -> dict[str, Any]:
    """What was returned, with the conditions that it does not speak of, and the generation that it is about."""
    after = written_out(returned)
    generation = context.metadata.generation
    # Not by comparing with what the function was handed: one that says the same each time would alternate with us.
    if hasattr(returned, "observed_generation") and (observes or not returned.observed_generation):
        after["observedGeneration"] = generation
    conditions = getattr(returned, "conditions", None)
    if conditions is not None and all(isinstance(each, Condition) for each in conditions):
        there = before.get("conditions") or []
        merged = merge_conditions(there, conditions, generation=generation, now=context.clock.now())
        after["conditions"] = merged
    return after
