"""The permissions that a ring needs, as manifests to apply: the role with which the sharder may place its objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from sharder.core.ringspec import RingSpec, placed_resources
from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE
from shardsdk.protocol.objects import GroupResource
from shardsdk.rbac import grant, rules_for

#: `list`: resyncs and the owners of controlled objects; `watch`: repair within a
#: second what admission missed; `patch`: labels.  Never get, create, update or delete.
RING_VERBS: Final = ("list", "watch", "patch")


def ring_role_name(ring: str) -> str:
    """Name of the role and of its binding; the one that the ecosystem's manifests use."""
    return f"sharding:clusterring:{ring}"


def ring_role(
    name: str,
    resources: Iterable[GroupResource],
    *,
    namespace: str = SYSTEM_NAMESPACE,
    service_account: str = SHARDER_SERVICE_ACCOUNT,
) -> list[dict[str, Any]]:
    """ClusterRole and ClusterRoleBinding that let the sharder place the objects of the ring called `name`.

    `resources`: main and controlled ones, in any order.
    """
    metadata = {"name": ring_role_name(name), "labels": {"app.kubernetes.io/name": "controller-sharding"}}
    return grant("ClusterRole", metadata, rules_for(resources, RING_VERBS), (namespace, service_account))


def ring_roles(
    rings: Iterable[tuple[RingSpec, Mapping[str, Any]]], service_account: tuple[str, str]
) -> list[dict[str, Any]]:
    """The roles of several rings, each with its status; `service_account`: namespace and name.

    With the status a role also has the resources that were taken off the ring and still carry its labels.
    That of a ring by ranges is empty: applied over one of a ring of its name by labels, it takes back what that had.
    """
    namespace, name = service_account
    return [
        document
        for ring, status in rings
        for document in ring_role(
            ring.name,
            (*ring.labelled, *(resource for resource, _ in placed_resources(status))),
            namespace=namespace,
            service_account=name,
        )
    ]


def render_roles(
    rings: Iterable[tuple[RingSpec, Mapping[str, Any]]], service_account: tuple[str, str], form: str | None = None
) -> str:
    """The same as text: YAML documents, or (`json`) a List."""
    documents = ring_roles(rings, service_account)
    if form == "json":
        listed = {"apiVersion": "v1", "kind": "List", "items": documents}
        return msgspec.json.format(msgspec.json.encode(listed), indent=2).decode() + "\n"
    import yaml

    return str(yaml.safe_dump_all(documents, sort_keys=False))
