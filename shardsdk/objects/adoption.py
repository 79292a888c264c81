"""Adopt and release children by selector, as ReplicaSets do with their pods.

    children = await claim(context, PODS, Selector(labels="app=web"))

=====================================  ========================================
object of the owner's namespace        what becomes of it
=====================================  ========================================
has another controller                 left alone
is controlled by this owner, selected  kept
is controlled by it, not selected      released, unless the owner is being deleted
has no controller, is selected         adopted, unless it or the owner is being deleted
=====================================  ========================================

Guarantees (tests/unit/shardsdk/objects/test_adoption.py, tests/integration/test_reconciler_parts.py):
before the first adoption the owner is read again, so that an owner that was
deleted meanwhile, or made anew under its name, adopts nothing; every patch is
conditional on the version that was seen, so that of two owners one succeeds.

With sharding, an adopted child gets this shard's label in the same patch, also
if it carries another shard's: it shows in the owner's cache at once, and is
never made a second time.  Nothing is taken from the other shard, which works on
the children of its own objects, and this one is nobody's child in the version
that the patch names (docs/decisions/0012).  A released child loses this shard's
label in the same patch.

Refuses: cluster-scoped children of a namespaced owner, and resources that the
controller was not declared to own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from shardsdk.cache.objects import controller_reference, is_controlled, metadata_of
from shardsdk.errors import ConfigurationError, Conflict, NotFound
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import ObjectMeta, PartialObject, Resource
from shardsdk.protocol.verdict import Verdict
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.references import check_reference


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one `claim` led to; all by metadata, as they are now.

    `children` are controlled by the owner and selected, the adopted ones among
    them.  What the cache shows follows a moment later.
    """

    children: list[PartialObject]
    adopted: list[PartialObject]
    released: list[PartialObject]


async def claim(context: Context[Any], resource: Resource, selector: Selector) -> Claimed:
    """Adopt the orphans of `resource` that `selector` selects, and release the children that it does not.

    It lists consistently, with the cost of a list: call it when the selector or
    a child may have changed, not in every reconcile of thousands of owners.

    Raises: ConfigurationError, Conflict (someone else was faster; try again), and whatever a list may raise.
    """
    _check(context, resource)
    namespace = context.metadata.namespace or None
    # Before the list: one that is selected meanwhile has another version by then, and the patch names this one.
    known = list(map(metadata_of, context.children(resource)))
    children: list[PartialObject] = []
    orphans: list[PartialObject] = []
    async for page in context.api.stream(resource, namespace, selector=selector):
        for found in page:
            if found.metadata.controller is None:
                orphans.append(found)
            elif is_controlled(found, context.main, context.request, context.metadata.uid):
                children.append(found)
    selected = {child.metadata.uid for child in children}
    released: list[PartialObject] = []
    if context.metadata.deletion_timestamp is None:
        stale = [child for child in known if child.uid not in selected]
        freed = [await release(context, resource, child) for child in stale]
        released = [each for each in freed if each is not None]
    adopted = await _adopt_all(context, resource, [each for each in orphans if _may_be_adopted(each)])
    return Claimed([*children, *adopted], adopted, released)


async def adopt(context: Context[Any], resource: Resource, child: ObjectMeta) -> PartialObject | None:
    """Make the reconciled object the controller of `child`, an orphan; `None`: it is gone, or on its way out.

    Raises: ConfigurationError, Conflict (child or owner is not what it was; try again).
    """
    _check(context, resource)
    orphan = PartialObject(child)
    if child.controller is not None or not _may_be_adopted(orphan):
        return None
    adopted = await _adopt_all(context, resource, [orphan])
    return adopted[0] if adopted else None


async def release(context: Context[Any], resource: Resource, child: ObjectMeta) -> PartialObject | None:
    """Let go of `child`: take the reconciled object out of its owners; `None`: it is gone, or not ours.

    Raises: ConfigurationError, Conflict (the child is not what it was; try again).
    """
    _check(context, resource)
    uid = context.metadata.uid
    kept = [msgspec.to_builtins(each) for each in child.owner_references or () if each.uid != uid]
    if len(kept) == len(child.owner_references or ()):
        return None
    metadata: dict[str, Any] = {"ownerReferences": kept, "resourceVersion": child.resource_version, "uid": child.uid}
    ring = context.identity.ring if context.identity else None
    if ring is not None and context.identity is not None and child.label(ring.shard) == context.identity.shard:
        metadata["labels"] = {ring.shard: None}
    return await _patch(context, resource, child, metadata)


async def _adopt_all(context: Context[Any], resource: Resource, orphans: list[PartialObject]) -> list[PartialObject]:
    if not orphans or not await _owner_may_adopt(context):
        return []
    made = [await _patch(context, resource, orphan.metadata, _adoption(context, orphan)) for orphan in orphans]
    return [each for each in made if each is not None]


async def _owner_may_adopt(context: Context[Any]) -> bool:
    """Look at the owner as it is now: is it still that one, alive, and this shard's?

    Raises: Conflict.
    """
    found = await context.api.find(context.main, context.request.name, context.request.namespace or None)
    if found is None or found.metadata.uid != context.metadata.uid:
        raise Conflict(f"{context.main.kind} {context.request} is not the one that was read; it adopts nothing")
    if context.judge(found) is not Verdict.RECONCILE:
        raise Conflict(f"{context.main.kind} {context.request} is leaving this shard; it adopts nothing")
    return found.metadata.deletion_timestamp is None


def _adoption(context: Context[Any], orphan: PartialObject) -> dict[str, Any]:
    child = orphan.metadata
    references = [
        msgspec.to_builtins(each) for each in child.owner_references or () if each.uid != context.metadata.uid
    ]
    # The client sees that this makes a child, and adds the shard's label.
    return {
        "ownerReferences": [*references, controller_reference(context.main, context.metadata)],
        "resourceVersion": child.resource_version,
        "uid": child.uid,
    }


async def _patch(
    context: Context[Any], resource: Resource, child: ObjectMeta, metadata: dict[str, Any]
) -> PartialObject | None:
    """Patch just that object in just that version; `None`: it is gone.  Raises: Conflict."""
    try:
        return await context.api.patch(resource, child.name, child.namespace or None, {"metadata": metadata})
    except NotFound:
        return None


def _check(context: Context[Any], resource: Resource) -> None:
    if not context.owns(resource):
        raise ConfigurationError(
            f"controller {context.controller!r} adopts {resource.group_resource} that it does not look at: declare"
            " .owns(…) for them"
        )
    check_reference(context.main, context.metadata, resource, context.metadata.namespace, f"{resource.kind} to adopt")


def _may_be_adopted(orphan: PartialObject) -> bool:
    return orphan.metadata.deletion_timestamp is None
