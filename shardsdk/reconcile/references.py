"""Owner references: who controls an object, and who goes with whom.

    body = set_controller_reference(context.main, context.metadata, CONFIGMAPS, {"metadata": {"name": "a"}})

Two mistakes are refused that Kubernetes lets pass or reports late: an owner in
another namespace (the garbage collector deletes such a child as if its owner
were gone) and a second controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardsdk.cache.objects import controller_reference
from shardsdk.errors import AlreadyOwned, ConfigurationError
from shardsdk.protocol.objects import ObjectMeta, Resource


def set_controller_reference(
    main: Resource, owner: ObjectMeta, resource: Resource, body: Mapping[str, Any]
) -> dict[str, Any]:
    """A copy of `body`, an object of `resource`, that `owner`, an object of `main`, controls.

    A namespaced body without a namespace gets its owner's.

    Raises: ConfigurationError when the owner cannot own an object there,
    AlreadyOwned when the body has another controller.
    """
    metadata = dict(body.get("metadata") or {})
    named = f"{resource.kind} {metadata.get('name') or metadata.get('generateName') or ''}".rstrip()
    owned_by = f"{main.kind} {owner.name}"
    if resource.namespaced and main.namespaced:
        metadata["namespace"] = metadata.get("namespace") or owner.namespace
    check_reference(main, owner, resource, metadata.get("namespace") or "", named)
    others: list[dict[str, Any]] = []
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("uid") == owner.uid:
            continue
        if reference.get("controller"):
            if f"{reference.get('kind')} {reference.get('name')}" == owned_by:
                raise AlreadyOwned(
                    f"{named} has the uid {reference.get('uid')!r} in its owner reference to {owned_by}, whose uid is"
                    f" {owner.uid!r}: leave ownerReferences out, they are filled in"
                )
            raise second_controller(named, owned_by, f"{reference.get('kind')} {reference.get('name')}")
        others.append(dict(reference))
    metadata["ownerReferences"] = [*others, controller_reference(main, owner)]
    return {**body, "metadata": metadata}


def second_controller(named: str, owned_by: str, other: str) -> AlreadyOwned:
    """What to raise of the object `named`, which `owned_by` is to control and `other` does."""
    return AlreadyOwned(
        f"{named} cannot be controlled by {owned_by}: {other} controls it already; release it there first, or choose"
        " another name"
    )


def check_reference(main: Resource, owner: ObjectMeta, resource: Resource, namespace: str, named: str) -> None:
    """Check that `owner` may own the object `named` of `resource` in `namespace`.

    Raises: ConfigurationError with what is wrong.
    """
    if not main.namespaced:
        return
    if not resource.namespaced:
        raise ConfigurationError(
            f"{named} is cluster-scoped, so {main.kind} {owner.namespace}/{owner.name}, which is in a namespace, cannot"
            " own it: clean it up with a finalizer instead"
        )
    if namespace != owner.namespace:
        raise ConfigurationError(
            f"{named} is in namespace {namespace!r}, its owner {main.kind} {owner.name} in {owner.namespace!r}: owner"
            " references do not reach across namespaces; create it in its owner's, or clean it up with a finalizer"
        )
