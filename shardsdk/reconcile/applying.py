"""Apply a child: name, namespace and controller filled in, sent by server-side apply, and only when that may change it.

Refuses: what `set_controller_reference` does, also when it is the object that is
there which has another controller: two that apply as one field owner would each
take away the other's reference, and go on for ever.  A body without a name of
its own is called like its owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, private_copy
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Kind, body_of
from shardsdk.kube.api import Api
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import ObjectMeta, Resource
from shardsdk.reconcile.applied import AppliedFor, digest_of
from shardsdk.reconcile.changed import changed_fields, is_told
from shardsdk.reconcile.passedover import check_no_status
from shardsdk.reconcile.references import second_controller, set_controller_reference
from shardsdk.reconcile.serverside import send_apply

K = TypeVar("K", bound=Kind)

log: Final = logger_of(__name__)

#: So many times an apply of the same has put back what somebody else had changed, and there is a warning.
PUT_BACK: Final = 50
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
    if (status := whole.pop("status", None)) is not None:
        check_no_status(thing, metadata.get("uid"), status)
    return set_controller_reference(main, owner, resource, whole)


async def check_controller(api: Api, cache: Cache[Any], child: Request, main: Resource, owner: ObjectMeta) -> None:
    """Check that no other object than `owner`, an object of `main`, controls `child`, one of the objects of `cache`.

    Costs a read for what the cache does not have, as a child that is new: it may be another shard's.
    Raises: AlreadyOwned.
    """
    metadata = cache.metadata(child)
    if metadata is None or _other_controller(metadata, main, owner):  # perhaps no more: a cache is late
        found = await api.find(cache.resource, child.name, child.namespace or None)
        metadata = None if found is None else found.metadata
    if metadata is not None and (other := _other_controller(metadata, main, owner)):
        raise second_controller(f"{cache.resource.kind} {child.name}", f"{main.kind} {owner.name}", other)


def _other_controller(metadata: ObjectMeta, main: Resource, owner: ObjectMeta) -> str:
    """Who controls an object that is not `owner`'s; empty: nobody, or who had the name of `owner` before it.

    What anybody else leaves behind as it goes, the garbage collector removes.
    """
    there = metadata.controller
    if there is None or there.uid == owner.uid:
        return ""
    before = (there.group, there.kind, there.name) == (main.group, main.kind, owner.name)
    return "" if before else f"{there.kind} {there.name}"


async def apply(
    api: Api,
    cache: Cache[Any],
    thing: K,
    applied: AppliedFor,
    field_owner: str,
    main: Resource,
    owner: ObjectMeta,
    *,
    force: bool,
) -> K:
    """Have the API server make the object as `thing` is, a child of `owner`, an object of `main`; as it is then.

    Nothing is sent when it is so already, as far as `cache` shows.
    Raises: ConfigurationError, AlreadyOwned, and what an apply may.
    """
    body, model = body_to_apply(main, owner, cache.resource, thing), type(thing)
    resource, metadata = cache.resource, body["metadata"]
    request = Request(metadata.get("namespace") or "", metadata["name"])
    child, sent = (resource.group_resource, request), digest_of(body)
    # One that has a name may be what was read, or made a moment ago, with a change.
    if not thing.metadata.name and not applied.begin(child, sent):
        raise ConfigurationError(
            f"a {resource.kind} without a name is applied twice in one reconcile, with other fields; both are called"
            f" {request.name}, like their owner, and each would take away what only the other has, for ever: apply all"
            f' fields at once, or give one a name, {resource.kind}("…", …): another, or the owner\'s if one is meant'
        )
    applied.names.add(child)
    cached = cache.peek(request)
    seen = cached if type(cached) is model else None
    if seen is not None and applied.holds(child, sent, seen):
        return private_copy(seen)
    before = applied.forget(child)
    try:
        await check_controller(api, cache, request, main, owner)
        made = await send_apply(
            api, resource, request.name, request.namespace or None, body, owner=field_owner, model=model, force=force
        )
    except BaseException:
        applied.fail(child)
        raise
    if is_told(times := applied.note(child, sent, body, made, before, seen), PUT_BACK):
        log.warning(
            "What is applied is changed by somebody else again and again, and put back: have one of the two leave it",
            extra={
                "namespace": request.namespace,
                "object": f"{main.kind} {owner.name}",
                "applied": f"{resource.kind} {request.name}",
                "field_owner": field_owner,
                "times": times,
                "fields": changed_fields(seen, made, body),
            },
        )
    return made
