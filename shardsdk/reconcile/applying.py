"""Apply a child: name, namespace and controller filled in, sent by server-side apply, and only when that may change it.

Refuses: what `set_controller_reference` does; a body without a name of its own
is called like its owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, private_copy
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Kind, body_of
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import ObjectMeta, Resource
from shardsdk.reconcile.applied import AppliedFor, digest_of
from shardsdk.reconcile.references import set_controller_reference
from shardsdk.reconcile.serverside import send_apply

K = TypeVar("K", bound=Kind)

#: What of an object's metadata is for whoever applies it to say; the rest is the API server's.
_METADATA: Final = ("name", "namespace", "labels", "annotations", "ownerReferences", "finalizers")


def body_to_apply(main: Resource, owner: ObjectMeta, resource: Resource, thing: Kind) -> dict[str, Any]:
    """`thing`, an object of `resource`, as `owner`, an object of `main`, applies it.

    What the API server alone sets is left out, so that an object that was read can be applied.
    Raises: ConfigurationError, AlreadyOwned.
    """
    body = body_of(thing)
    metadata: Mapping[str, Any] = body["metadata"]
    if metadata.get("generateName") and not metadata.get("name"):
        raise ConfigurationError(
            f"{resource.kind} with generateName {metadata['generateName']!r} cannot be applied, it would be another one"
            " each time: give it a name that follows from its owner's, or create it by ctx.api.create"
        )
    kept = {name: metadata[name] for name in _METADATA if name in metadata}
    whole = {**body, "metadata": {"name": owner.name, **kept}}
    whole.pop("status", None)
    return set_controller_reference(main, owner, resource, whole)


async def apply(
    api: Api,
    cache: Cache[Any],
    body: Mapping[str, Any],
    model: type[K],
    applied: AppliedFor,
    owner: str,
    *,
    force: bool,
) -> K:
    """Have the API server make the object as `body` says, for the field owner `owner`; as it is then.

    Nothing is sent when it is so already, as far as `cache` shows.
    """
    resource, metadata = cache.resource, body["metadata"]
    request = Request(metadata.get("namespace") or "", metadata["name"])
    child, sent = (resource.group_resource, request), digest_of(body)
    applied.names.add(child)
    seen = cache.peek(request)
    if type(seen) is model and applied.holds(child, sent, seen):
        return private_copy(seen)
    applied.forget(child)
    made = await send_apply(
        api, resource, request.name, request.namespace or None, body, owner=owner, model=model, force=force
    )
    applied.note(child, sent, made)
    return made
