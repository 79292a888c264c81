"""Pruning: children that a reconcile has not applied any more are deleted.

Only objects go that this object controls, of the kinds named, on which this
controller has applied fields (`managedFields` say so), each in just the version
that was looked at.  What another controller made for the same object stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from shardsdk.cache.objects import Request
from shardsdk.errors import NotFound
from shardsdk.kinds import Kind, resource_of
from shardsdk.protocol.objects import OwnerReference
from shardsdk.reconcile.context import Context


class _Manager(msgspec.Struct, frozen=True):
    manager: str = ""
    operation: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    owner_references: list[OwnerReference] | None = None
    deletion_timestamp: str | None = None
    managed_fields: list[_Manager] | None = None


class _Managed(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


async def prune(context: Context[Any], kinds: Sequence[type[Kind]]) -> list[Request]:
    """Delete the children of these kinds that this reconcile has not applied; gives their names.

    Raises: Conflict when one has changed meanwhile (it is looked at again).
    """
    named = set() if context.applied is None else context.applied.names
    pruned = []
    for kind in kinds:
        group = resource_of(kind).group_resource
        for child in context.children(kind):
            request = Request(child.metadata.namespace, child.metadata.name)
            gone = child.metadata.deletion_timestamp is not None
            if not gone and (group, request) not in named and await _delete(context, kind, request):
                pruned.append(request)
    return pruned


async def _delete(context: Context[Any], kind: type[Kind], request: Request) -> bool:
    resource, namespace = resource_of(kind), request.namespace or None
    try:
        found = (await context.api.get(resource, request.name, namespace, model=_Managed)).metadata
    except NotFound:
        return False
    ours = any(each.controller and each.uid == context.metadata.uid for each in found.owner_references or ())
    applied = any(each.manager == context.field_owner for each in found.managed_fields or ())
    if not ours or not applied or found.deletion_timestamp is not None:
        return False
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
