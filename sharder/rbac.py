"""The permissions that a ring needs, as manifests to apply: the role with which the sharder may place its objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from sharder.core.rights import MissingRule, rights_to_grant
from sharder.core.ringspec import RingSpec, placed_resources
from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE
from shardsdk.protocol.objects import GroupResource
from shardsdk.rbac import Right, grant, render_rules, rules_for

#: `list`: resyncs and the owners of controlled objects; `watch`: repair within a
#: second what admission missed; `patch`: labels.  Never get, create, update or delete.
RING_VERBS: Final = ("list", "watch", "patch")


def rules_on(resources: Iterable[GroupResource]) -> tuple[MissingRule, ...]:
    """What it takes to label any object of `resources`; the last of them no role that is printed here grants."""
    listed = tuple(resources)
    rules = (MissingRule(verb, resource) for resource in listed for verb in RING_VERBS)
    return tuple(dict.fromkeys((*rules, *rights_to_grant(listed))))


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
            _labelled(ring, status),
            namespace=namespace,
            service_account=name,
        )
    ]


def account_option(account: tuple[str, str]) -> str:
    """What `rbac` has to be told for `account` (namespace, name), with a space before it; empty: nothing."""
    return "" if account == (SYSTEM_NAMESPACE, SHARDER_SERVICE_ACCOUNT) else f" --service-account {'/'.join(account)}"


def render_roles(
    rings: Iterable[tuple[RingSpec, Mapping[str, Any]]], service_account: tuple[str, str], form: str | None = None
) -> str:
    """The same as text: YAML documents, or (`json`) a List.

    What a ring may need and gets from its administrator alone is a comment, which JSON has not.
    """
    rings = tuple(rings)
    documents = ring_roles(rings, service_account)
    if form == "json":
        listed = {"apiVersion": "v1", "kind": "List", "items": documents}
        return msgspec.json.format(msgspec.json.encode(listed), indent=2).decode() + "\n"
    from shardsdk.commands.rendering import render

    comments = "".join(_not_granted(ring.name, _labelled(ring, status)) for ring, status in rings)
    return comments + render(documents)


def _labelled(ring: RingSpec, status: Mapping[str, Any]) -> tuple[GroupResource, ...]:
    return (*ring.labelled, *(resource for resource, _ in placed_resources(status)))


def _not_granted(ring: str, resources: Iterable[GroupResource]) -> str:
    """The rights that nobody should get by piping a manifest to kubectl, with what they cost."""
    rights = rights_to_grant(resources)
    if not rights:
        return ""
    lines = [
        f"Not granted: ring {ring} lists objects that grant rights. The API server lets nobody change one, be it a",
        "label, who has not all the rights that it grants, or may do what is listed below. What the sharder cannot",
        "label waits without a shard, and so does its owner. The remedies, the best one first:",
        " 1. Leave these resources out of the ring, and have every shard watch all of them.",
        " 2. Grant the sharder what these objects grant, and no more; the ring's condition PermissionsGranted, which",
        "    asks for the rules below by name, stays false.",
        " 3. Add these rules to the role. Whoever then has the sharder's token can give any right to those whom",
        "    such an object names, or (bind) to anybody.",
        *(f"    {line}" for line in render_rules(Right(each.verb, each.resource) for each in rights)),
    ]
    return "".join(f"# {line}\n" for line in lines)
