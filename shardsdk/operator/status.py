"""Status by return value: what a reconcile returned becomes one conditional patch, or none.

Guarantees (tests/unit/shardsdk/operator/test_status.py): what the model of the
status does not know stays; of conditions those of other types stay, and
`lastTransitionTime` moves only when a condition's status does; what is there
already is not written, where what the reconcile itself has written is there,
too; what somebody wrote meanwhile answers Conflict, and the object is
reconciled again.
"""

from __future__ import annotations

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


async def write_status(context: Context[Any], returned: Any) -> bool:
    """Have the object's status be what was `returned`; `False`: it is already.

    Raises: Conflict, NotFound (no object, or a kind without the status subresource).
    """
    there = getattr(await _as_known(context), "status", None)
    before = {} if there is None else written_out(there)
    after = _complete(context, before, returned)
    if after == before:
        return False
    # The first time also what has its default value: columns of `kubectl get` show it.
    changes = difference(before if any(before.values()) else {}, after)
    name, namespace = context.name, context.namespace or None
    made = await context.api.patch(context.main, name, namespace, {"status": changes}, subresource="status")
    context.metadata = made.metadata
    return True


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


def _complete(context: Context[Any], before: dict[str, Any], returned: Any) -> dict[str, Any]:
    """What was returned, with the conditions that it does not speak of, and the generation that it is about."""
    after = written_out(returned)
    generation = context.metadata.generation
    if hasattr(returned, "observed_generation") and not returned.observed_generation:
        after["observedGeneration"] = generation
    conditions = getattr(returned, "conditions", None)
    if conditions is not None and all(isinstance(each, Condition) for each in conditions):
        there = before.get("conditions") or []
        merged = merge_conditions(there, conditions, generation=generation, now=context.clock.now())
        after["conditions"] = merged
    return after
