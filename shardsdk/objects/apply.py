"""Server-side apply with one field owner per controller.

    await server_side_apply(context, CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"key": "value"}})

The field owner is the controller's name, and never the shard's: whichever shard
reconciles the object next goes on as the same owner, so that a field which it
no longer applies goes away.

The controller reference is the caller's to set (`set_controller_reference`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardsdk.cache.objects import Request
from shardsdk.errors import ConfigurationError
from shardsdk.kube.api import PARTIAL, T
from shardsdk.protocol.objects import Resource
from shardsdk.reconcile.applying import check_controller
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.serverside import send_apply


async def server_side_apply(
    context: Context[Any],
    resource: Resource,
    body: Mapping[str, Any],
    *,
    subresource: str = "",
    model: type[T] = PARTIAL,  # type: ignore[assignment]
    force: bool = True,
) -> T:
    """Make the named object of `resource` have exactly these fields of this controller's; it is created if need be.

    A namespaced body without a namespace means the reconciled object's.  With
    `force` fields that others own are taken over, as controllers do; without it
    they are a Conflict.  What was applied so is not pruned by this reconcile.

    Raises: ConfigurationError for a body without name, AlreadyOwned (the reconciled object is to control it, and
    another one does), Conflict, Invalid.
    """
    metadata = dict(body.get("metadata") or {})
    if not metadata.get("name"):
        raise ConfigurationError(f"apply {resource.group_resource}: the body has no metadata.name, which apply needs")
    metadata.pop("managedFields", None)
    namespace = (metadata.get("namespace") or context.request.namespace or None) if resource.namespaced else None
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body, "metadata": metadata}
    context.note_applied(resource, metadata["name"], namespace or "")
    references, uid = metadata.get("ownerReferences") or (), context.metadata.uid
    if context.owns(resource) and any(each.get("controller") and each.get("uid") == uid for each in references):
        child = Request(namespace or "", metadata["name"])
        await check_controller(context.api, context.cache(resource), child, context.main, context.metadata)
    return await send_apply(
        context.api, resource, metadata["name"], namespace, whole, owner=context.field_owner, subresource=subresource,
        model=model, force=force,
    )  # fmt: skip
