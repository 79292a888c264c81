"""Ring keys: the strings that the hash ring is asked about.

Does: build the key of a main object, and of a controlled object the key of its
owner, so that both land on one shard.  Refuses: objects that no main resource
controls; they have no key and are left alone.

The format is frozen: changing it moves every object of every ring
(docs/decisions/0003).
"""

from __future__ import annotations

from shardsdk.protocol.objects import OwnerReference, Resource


def main_key(group: str, kind: str, namespace: str, name: str) -> str:
    """`<group>/<Kind>/<namespace>/<name>`; the core group is empty, so is a cluster-scoped object's namespace."""
    return f"{group}/{kind}/{namespace}/{name}"


def resource_key(resource: Resource, namespace: str, name: str) -> str:
    """Key of the object `name` of a main `resource`; `namespace` is ignored where the resource has none."""
    return main_key(resource.group, resource.kind, namespace if resource.namespaced else "", name)


def controlled_key(reference: OwnerReference | None, namespace: str, main: Resource) -> str | None:
    """Key of the owner that `reference`, a controller reference in `namespace`, points to.

    `None`: no reference, or its group and kind are not the main resource's, or
    it cannot be an owner (no name, or one that is no object's; a namespaced owner of a cluster-scoped object).
    """
    if reference is None or not reference.names_an_object:
        return None
    if reference.group != main.group or reference.kind != main.kind:
        return None
    if main.namespaced and not namespace:
        return None
    return resource_key(main, namespace, reference.name)
