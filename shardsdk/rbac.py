"""What a shard may do: the manifests of its ServiceAccount, its roles and their bindings.

They are those of rbac/shard.yaml, for any controller; resources are named one by one, without wildcards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource

#: Every shard: `list` and `watch` its objects, and `patch` main ones, to let go of them.
MAIN_VERBS: Final = ("list", "watch", "patch")
CONTROLLED_VERBS: Final = ("list", "watch")
#: Its lease, and Events about it.
LEASE_VERBS: Final = ("get", "create", "patch")
EVENT_VERBS: Final = ("create", "patch")
#: And its ring, to compare what that lists with what it works on.
RING_VERBS: Final = ("get",)

Manifest = dict[str, Any]

_GROUP: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class ShardRole:
    """What the role is made for.

    `ring` is the only one that it may read.  `name` is the ServiceAccount's and
    the roles'; `namespace` is where it and the shards' leases are;
    `watch_namespace` is where the objects are (`None`: in all).  The further
    verbs are what the controller does for a living.
    """

    ring: str
    name: str
    namespace: str
    main: Sequence[GroupResource]
    controlled: Sequence[GroupResource] = ()
    further_main_verbs: Sequence[str] = ()
    further_controlled_verbs: Sequence[str] = ()
    watch_namespace: str | None = None


def shard_role(role: ShardRole) -> list[Manifest]:
    """ServiceAccount, roles and bindings."""
    account = (role.namespace, role.name)
    own = [
        *rules_for([GroupResource("coordination.k8s.io", "leases")], LEASE_VERBS),
        *rules_for([GroupResource("", "events")], EVENT_VERBS),
    ]
    objects = [
        *rules_for(role.main, (*MAIN_VERBS, *role.further_main_verbs)),
        *rules_for(role.controlled, (*CONTROLLED_VERBS, *role.further_controlled_verbs)),
    ]
    ring = [{**rule, "resourceNames": [role.ring]} for rule in rules_for([CLUSTERRINGS.group_resource], RING_VERBS)]
    made: list[Manifest] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": role.name, "namespace": role.namespace}},
        *grant("Role", {"name": role.name, "namespace": role.namespace}, own, account),
    ]
    if role.watch_namespace is None:
        return [*made, *grant("ClusterRole", {"name": role.name}, [*objects, *ring], account)]
    # A role for the objects beside that for the leases, in one namespace, has a name of its own.
    within = {"name": f"{role.name}-objects", "namespace": role.watch_namespace}
    # A ring is in no namespace; a cluster role's name is one for all namespaces.
    reads_ring = {"name": f"sharding:ring-reader:{role.namespace}:{role.name}"}
    return [*made, *grant("Role", within, objects, account), *grant("ClusterRole", reads_ring, ring, account)]


def rules_for(resources: Iterable[GroupResource], verbs: Iterable[str]) -> list[dict[str, Any]]:
    """The same verbs for all of them: a rule for each API group."""
    groups: dict[str, list[str]] = {}
    for each in sorted(set(resources)):
        groups.setdefault(each.group, []).append(each.resource)
    once = dict.fromkeys(verbs)
    return [{"apiGroups": [group], "resources": names, "verbs": list(once)} for group, names in groups.items()]


def grant(
    kind: str, metadata: Mapping[str, Any], rules: Sequence[Mapping[str, Any]], account: tuple[str, str]
) -> list[Manifest]:
    """A `Role` or `ClusterRole`, and its binding to a ServiceAccount (namespace and name)."""
    namespace, name = account
    return [
        {"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": dict(metadata), "rules": list(rules)},
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": f"{kind}Binding",
            "metadata": dict(metadata),
            "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]
