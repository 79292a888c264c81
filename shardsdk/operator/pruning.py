"""Pruning: children that a reconcile has not applied any more are deleted.

Only objects go that this object controls, of the kinds named, on which this
controller has applied fields (`managedFields` say so), each in just the version
that was looked at.  What another controller made for the same object stays.  Of
what one of this controller's timers applies as well the timer's fields stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from shardsdk.cache.objects import Request
from shardsdk.errors import Invalid, NotFound
from shardsdk.kinds import Kind, resource_of
from shardsdk.protocol.objects import OwnerReference, Resource
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.serverside import send_apply


class ManagedFields(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `metadata.managedFields`."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: dict[str, Any] = {}


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of `metadata` that name an object and tell who owns and who has written it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    owner_references: list[OwnerReference] | None = None
    deletion_timestamp: str | None = None
    managed_fields: list[ManagedFields] | None = None


class Managed(msgspec.Struct, frozen=True):
    """What tells of an object who has written which of its fields."""

    metadata: _Metadata = _Metadata()


async def prune(context: Context[Any], kinds: Sequence[type[Kind]], timers: Collection[str] = ()) -> list[Request]:
    """Delete the children of these kinds that this reconcile has not applied; gives their names.

    `timers` are the field owners of this controller's timers.

    Raises: Conflict when one has changed meanwhile (it is looked at again).
    """
    named = set() if context.applied is None else context.applied.names
    pruned = []
    for kind in kinds:
        group = resource_of(kind).group_resource
        for child in context.children(kind):
            request = Request(child.metadata.namespace, child.metadata.name)
            gone = child.metadata.deletion_timestamp is not None
            if not gone and (group, request) not in named and await _delete(context, kind, request, timers):
                pruned.append(request)
    return pruned


async def _delete(context: Context[Any], kind: type[Kind], request: Request, timers: Collection[str]) -> bool:
    resource, namespace = resource_of(kind), request.namespace or None
    try:
        found = (await context.api.get(resource, request.name, namespace, model=Managed)).metadata
    except NotFound:
        return False
    ours = any(each.controller and each.uid == context.metadata.uid for each in found.owner_references or ())
    # What a manager has written otherwise is an entry of its own: a patch, say, by a client that goes by the same name.
    entries = [each for each in found.managed_fields or () if each.operation == "Apply" and not each.subresource]
    fields = {each.manager: each.fields_v1 for each in entries}
    if not ours or context.field_owner not in fields or found.deletion_timestamp is not None:
        return False
    if any(each in fields for each in timers):
        try:
            if _has_more(fields[context.field_owner], context):
                await _take_back(context, resource, found)
            return False
        except Invalid:
            pass  # what the timer applies cannot be there by itself
    try:
        await context.api.delete(
            resource,
            request.name,
            namespace,
            uid=found.uid,
            resource_version=found.resource_version,
            propagation="Background",
        )
    except NotFound:
        return False
    context.log.info("Child pruned", kind=resource.kind, child=request.name)
    return True


def _has_more(fields: Mapping[str, Any], context: Context[Any]) -> bool:
    """Whether there is more in what was applied than whose child it is."""
    metadata = fields.get("f:metadata") or {}
    labels = () if context.identity is None else context.identity.labels
    more = (metadata.get("f:labels") or {}).keys() - {".", *(f"f:{each}" for each in labels)}
    return bool(more or fields.keys() - {"f:metadata"} or metadata.keys() - {"f:labels", "f:ownerReferences"})


async def _take_back(context: Context[Any], resource: Resource, found: _Metadata) -> None:
    """Have nothing of a child be this controller's but that it is one: it stays with its shard, and is collected."""
    metadata = {
        "name": found.name,
        "uid": found.uid,
        "resourceVersion": found.resource_version,
        "ownerReferences": [context.controller_reference()],
    }
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    context.note_applied(resource, found.name, found.namespace)
    await send_apply(
        context.api, resource, found.name, found.namespace or None, body, owner=context.field_owner, force=True
    )
