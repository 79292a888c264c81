"""Status by return value: what a reconcile returned becomes one conditional patch, or none; so does that it gave up.

Guarantees (tests/unit/shardsdk/operator/test_status.py, test_slow.py): what the model of
the status does not know stays, in entries of lists, too; of conditions those of
other types stay, and `lastTransitionTime` moves only when a condition's status
does; what is there already is not written, where what the reconcile itself has
written is there, too; fields that somebody else wrote meanwhile stay, and if the
reconcile has changed the same ones, or was about another spec, that answers
Conflict, and the object is reconciled again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from shardsdk.admission.patching import carried_over, same
from shardsdk.cache.objects import metadata_of
from shardsdk.errors import Conflict, NotFound
from shardsdk.kinds import Kind
from shardsdk.kinds.conditions import Condition, merge_conditions, render_time
from shardsdk.kinds.custom import has_defaults
from shardsdk.kinds.wire import wire_name, written_out
from shardsdk.kinds.zones import check_zones
from shardsdk.kube.decoding import codec_of
from shardsdk.objects.anew import ATTEMPTS, is_still
from shardsdk.operator.leftovers import failure_owner
from shardsdk.reconcile.context import Context

K = TypeVar("K", bound=Kind)
Object = dict[str, Any]

#: Where a status has its conditions by their types, while it is compared and merged; no field is called so.
_BY_TYPE: Final = "conditions/type"
_SINCE: Final = "lastTransitionTime"
#: What a condition says, apart from since when.
_SAID: Final = ("type", "status", "reason", "message")


def cached_object(context: Context[K]) -> K | None:
    """The object as the cache has it: `context.object` is the user's to change."""
    found: K | None = context.cache(context.main).peek(context.request)
    return found


async def write_status(context: Context[Any], returned: Any, *, observes: bool, read: Kind | None = None) -> bool:
    """Have the object's status be what was `returned`; `False`: it is already.

    `observes`: its `observedGeneration` is the generation that was reconciled, whatever was returned; else, where none
    was, what is there.  `read` is the object as the function was handed it; `None`: the function has written it itself
    since.

    Raises: Conflict, NotFound (no object, or a kind without the status subresource), ConfigurationError (a time without
    a zone).
    """
    before = _written(await _as_known(context))
    if same(_complete(context, before, returned, observes=observes), before):
        return False
    before = before if read is None else _written(read)
    after = _complete(context, before, returned, observes=observes)
    check_zones(type(returned), after, before, "status")
    there = before if any(before.values()) else {}

    def change(status: Object, found: Object | None) -> Object:
        if not any(status.values()) and not there:
            return after  # the first time also what has its default value: columns of `kubectl get` show it
        shown = before if found is None else _shown(context, found)
        current, known, wanted, meanwhile = _by_type(status, before, after, shown)
        if _meet(difference(known, meanwhile), difference(known, wanted)):
            raise _changed(context)
        # Entries of a status come and go, and what stands in the place of one need not be about the same thing.
        merged = carried_over(current, known, wanted, by_place=False)
        return _as_listed(merged, current, render_time(context.clock.now()))

    return await _rewrite(context, change, None if _loses_fields(before, after) else there, again=read is not None)


async def write_failure(
    context: Context[Any], failed: Sequence[Condition], *, status: type[Any], observes: bool
) -> bool:
    """Have the object's status, a `status`, say by these conditions how it `failed`; `False`: it does already.

    `observes`: and by its `observedGeneration` that this is of the generation that was reconciled.

    Raises: Conflict, NotFound (no object, or a kind without the status subresource).
    """
    generation, now = context.metadata.generation, context.clock.now()

    def change(there: Object, _: Object | None) -> Object:
        # A status that is not there may need more than this to be one.
        if not there and not has_defaults(status):
            return there
        after = dict(there)
        if failed:
            known = there.get("conditions") or []
            after["conditions"] = merge_conditions(known, failed, generation=generation, now=now)
        if observes:
            after[wire_name(status, "observed_generation")] = generation
        return after

    return await _rewrite(context, change, await _with_whole_conditions(context), manager=failure_owner(context))


async def take_back_failures(context: Context[Any], failed: Sequence[Condition], found: Object | None = None) -> bool:
    """Have the object's status not say any more how it `failed`; `False`: it does not, or not as it was written.

    `found` is the object, where that was just read.

    Raises: Conflict, NotFound (no object, or a kind without the status subresource).
    """
    written = [
        {"type": each.type, "status": str(each.status), "reason": each.reason, "message": each.message}
        for each in failed
    ]

    def change(there: Object, _: Object | None) -> Object:
        known = there.get("conditions") or []
        kept = [each for each in known if {name: each.get(name, "") for name in _SAID} not in written]
        return there if len(kept) == len(known) else {**there, "conditions": kept}

    there = await _with_whole_conditions(context) if found is None else None
    return await _rewrite(context, change, there, found=found)


async def _with_whole_conditions(context: Context[Any]) -> Object | None:
    """The object's status as it is on the wire; `None`: its class need not show all of its conditions."""
    there = await _as_known(context)
    conditions = getattr(getattr(there, "status", None), "conditions", None) or ()
    # They are written as one list.
    return _written(there) if all(isinstance(each, dict) for each in conditions) else None


async def _rewrite(
    context: Context[Any],
    change: Callable[[Object, Object | None], Object],
    there: Object | None,
    *,
    again: bool = True,
    manager: str | None = None,
    found: Object | None = None,
) -> bool:
    """Have the object's status be as `change` makes it; `False`: it is already.

    `there` is the status at the version that the reconcile knows (`None`: it is read, or that of `found`).  `again`: of
    a later version, as long as that is still what the reconcile is about, as well.  `change` is given the object of
    that, too.  `manager` signs it (`None`: the program's name).
    """
    version = context.version
    for left in reversed(range(ATTEMPTS)):
        if there is None:
            if found is None:
                found = await context.api.find(context.main, context.name, context.namespace or None, model=dict)
            if found is None:
                raise NotFound(f"{context.main.kind} {context.request} is gone", status=404)
            metadata = metadata_of(found)
            if metadata.resource_version != context.version and not (again and is_still(context, metadata)):
                raise _changed(context)
            there, version = found.get("status") or {}, metadata.resource_version
        changes = difference(there, change(there, None if version == context.version else found))
        if not changes:
            return False
        try:
            await _send(context, changes, version, manager)
        except Conflict:
            if not left or not again:
                raise
            there = found = None
        else:
            break
    return True


def _changed(context: Context[Any]) -> Conflict:
    return Conflict(f"{context.main.kind} {context.request} has changed while it was reconciled", status=409)


async def _send(context: Context[Any], changes: Object, version: str, manager: str | None) -> None:
    name, namespace = context.name, context.namespace or None
    body = {"metadata": {"resourceVersion": version}, "status": changes}
    made = await context.api.patch(context.main, name, namespace, body, subresource="status", field_manager=manager)
    context.metadata = made.metadata


def _shown(context: Context[Any], found: Object) -> Object:
    """What the objects' class shows of the status of one.  Raises: Conflict when that does not fit the class."""
    model = context.cache(context.main).model
    try:
        return _written(codec_of(model).read(msgspec.json.encode(found)))
    except msgspec.MsgspecError:
        raise _changed(context) from None


def _written(thing: Any) -> Object:
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


def difference(before: Object, after: Object) -> Object:
    """The JSON merge patch that makes `after` of `before`.

    >>> difference({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2, "e": 4}})
    {'a': None, 'b': {'d': None, 'e': 4}}
    """
    changes: Object = {name: None for name in before if name not in after}
    for name, value in after.items():
        there = before.get(name)
        if isinstance(value, dict) and isinstance(there, dict):
            inner = difference(there, value)
            if inner:
                changes[name] = inner
        elif name not in before or not same(there, value):
            changes[name] = value
    return changes


def _meet(ours: Object, theirs: Object) -> bool:
    """Whether two merge patches are about the same field.

    >>> _meet({"a": 1, "b": {"c": 2}}, {"b": {"d": 2}}), _meet({"b": {"c": 2}}, {"b": {"c": 3}})
    (False, True)
    """
    both = ((ours[name], theirs[name]) for name in ours.keys() & theirs.keys())
    return any(not (isinstance(a, dict) and isinstance(b, dict)) or _meet(a, b) for a, b in both)


def _loses_fields(before: Object, after: Object) -> bool:
    """Whether a list of objects is written anew, of whose fields its class may not have shown all."""
    for name, there in before.items():
        value = after.get(name)
        if isinstance(there, dict) and isinstance(value, dict):
            if _loses_fields(there, value):
                return True
        elif (
            isinstance(there, list)
            and value
            and not same(value, there)
            and any(isinstance(each, dict) for each in there)
        ):
            return True
    return False


def _typed(conditions: Any) -> bool:
    """Whether these are conditions, of which there is one of a type, and not something else that is called so."""
    if not isinstance(conditions, list) or not all(isinstance(each, dict) for each in conditions):
        return False
    types = [each.get("type") for each in conditions]
    return all(isinstance(each, str) and each for each in types) and len(set(types)) == len(types)


def _by_type(*statuses: Object) -> Sequence[Object]:
    """Statuses with their conditions by type, if all of them can be written so."""
    if not all(_typed(each.get("conditions") or []) for each in statuses):
        return statuses
    return [
        {name: value for name, value in status.items() if name != "conditions"}
        | {_BY_TYPE: {each["type"]: each for each in status["conditions"]}}
        if isinstance(status.get("conditions"), list)
        else status
        for status in statuses
    ]


def _as_listed(status: Object, before: Object, now: str) -> Object:
    """A status with its conditions as a list; of those whose status is not as `before` none became so earlier."""
    if _BY_TYPE not in status:
        return status
    others = {name: value for name, value in status.items() if name != _BY_TYPE}
    conditions, known = status[_BY_TYPE], before.get(_BY_TYPE, {})
    for name, former in known.items():
        each = conditions.get(name, former)
        if each.get("status") != former.get("status") and _SINCE in former and each.get(_SINCE) == former[_SINCE]:
            conditions = {**conditions, name: {**each, _SINCE: now}}
    return {**others, "conditions": list(conditions.values())}


def _complete(context: Context[Any], before: Object, returned: Any, *, observes: bool) -> Object:
    """What was returned, with the conditions that it does not speak of, and the generation that it is about."""
    after = written_out(returned)
    generation = context.metadata.generation
    # Not by comparing with what the function was handed: one that says the same each time would alternate with us.
    if hasattr(returned, "observed_generation"):
        observed = wire_name(type(returned), "observed_generation")
        if observes:
            after[observed] = generation
        elif not returned.observed_generation and observed in before:
            after[observed] = before[observed]
    there = before.get("conditions") or []
    conditions, now = getattr(returned, "conditions", None), context.clock.now()
    listed = conditions if isinstance(conditions, list | tuple | set | frozenset) else ()
    if conditions is None:
        if there and hasattr(returned, "conditions"):
            after["conditions"] = there
    elif listed and all(isinstance(each, Condition) for each in listed):
        after["conditions"] = merge_conditions(there, list(listed), generation=generation, now=now)
    elif _typed(there) and _typed(after.get("conditions")):
        timed = any(wire_name(type(each), "last_transition_time") == _SINCE for each in listed)
        after["conditions"] = _merged(there, after["conditions"], render_time(now) if timed else None)
    return after


def _merged(there: Sequence[Object], wanted: Sequence[Object], now: str | None) -> list[Object]:
    """The same for conditions of another class; `now`: that has the time of transition, which may be filled in."""
    merged = {each["type"]: each for each in there}
    for each in wanted:
        before = merged.get(each["type"], {})
        since = before.get(_SINCE) if before.get("status") == each.get("status") else None
        since = since or each.get(_SINCE) or now
        merged[each["type"]] = {**each, _SINCE: since} if since else each
    return list(merged.values())
