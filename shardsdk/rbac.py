"""What a shard may do: the manifests of its ServiceAccount, its roles and their bindings.

They are those of rbac/shard.yaml, for any controller; resources are named one by one, without wildcards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.errors import ConfigurationError
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, RBAC_GROUP, GroupResource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS

#: What a rule may grant.  Source: Kubernetes, "Authorization", request verbs; and the further ones of its own groups,
#: for those who give others rights, or sign for them.
VERBS: Final = (
    *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
    *("bind", "escalate", "impersonate", "approve", "sign", "attest", "use"),
)
#: How else a verb may be written: all of them, or one that an aggregated API server has of its own.
_OWN_VERB: Final = re.compile(r"\*|[a-z][a-z0-9:/-]*")
#: From this likeness on it is taken for one of `VERBS`, misspelt: `patches`, and not `assign`.
_MISSPELT: Final = 0.82
#: What people write for several of them.
_SEVERAL: Final = ("read", "write")
#: Every shard: `list` and `watch` its objects, and `patch` main ones, to let go of them.
MAIN_VERBS: Final = ("list", "watch", "patch")
CONTROLLED_VERBS: Final = ("list", "watch")
#: The status of a main object, where it has one: what `set_conditions` and a status of one's own write.
STATUS_VERBS: Final = ("patch",)
#: The finalizers of a main object that others belong to: their owner references block its deletion, which some clusters
#: let nobody write who could not as well add a finalizer.  Source: Kubernetes, OwnerReferencesPermissionEnforcement.
FINALIZERS_VERBS: Final = ("update",)
#: Its lease, and Events about it; Events about objects are in those objects' namespaces.
LEASE_VERBS: Final = ("get", "create", "patch")
EVENTS: Final = GroupResource("", "events")
EVENT_VERBS: Final = ("create", "patch")
#: And its ring, to compare what that lists with what it works on.
RING_VERBS: Final = ("get",)
#: Where the ring assigns ranges: what says who has which, and the leases that say who still holds which.
ASSIGNMENT_VERBS: Final = ("get", "list", "watch")
LEASE_VERBS_BY_RANGES: Final = ("list",)

Manifest = dict[str, Any]
#: As a role has it: `apiGroups`, `resources`, `verbs`.
Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ShardRole:
    """What the role is made for.

    `ring` is the only one that it may read.  `name` is the ServiceAccount's and
    the roles'; `namespace` is where it and the shards' leases are;
    `watch_namespace` is where the objects are (`None`: in all).  The further
    verbs are what the controller does for a living.  `by_ranges`: the ring assigns
    ranges of hashes, so that nobody writes on an object to let go of it.
    """

    ring: str
    name: str
    namespace: str
    main: Sequence[GroupResource]
    controlled: Sequence[GroupResource] = ()
    further_main_verbs: Sequence[str] = ()
    further_controlled_verbs: Sequence[str] = ()
    watch_namespace: str | None = None
    by_ranges: bool = False


def check_verbs(verbs: Iterable[object], where: str) -> None:
    """Raises: ConfigurationError for what is no verb; a role would be made with it, and grant nothing by it."""
    for verb in verbs:
        if not isinstance(verb, str) or not _OWN_VERB.fullmatch(verb) or (verb not in VERBS and _is_misspelt(verb)):
            raise ConfigurationError(f"{where}: {verb!r} is no verb; there are {', '.join(VERBS)}, and '*'")


def _is_misspelt(verb: str) -> bool:
    import difflib  # only what is no verb of Kubernetes' own is compared

    return verb in _SEVERAL or bool(difflib.get_close_matches(verb, VERBS, n=1, cutoff=_MISSPELT))


def shard_role(role: ShardRole) -> list[Manifest]:
    """ServiceAccount, roles and bindings."""
    main_verbs = CONTROLLED_VERBS if role.by_ranges else MAIN_VERBS
    objects = [
        *rules_for(role.main, (*main_verbs, *role.further_main_verbs)),
        *rules_for((part_of(each, "status") for each in role.main if _has_status(each)), STATUS_VERBS),
        *rules_for((part_of(each, "finalizers") for each in role.main if role.controlled), FINALIZERS_VERBS),
        *rules_for(role.controlled, (*CONTROLLED_VERBS, *role.further_controlled_verbs)),
        *rules_for([EVENTS], EVENT_VERBS),
    ]
    namespaces = () if role.watch_namespace is None else (role.watch_namespace,)
    return account_with(
        role.namespace,
        role.name,
        own=lease_rules(by_ranges=role.by_ranges),
        objects=objects,
        cluster=ring_rules(role.ring, by_ranges=role.by_ranges),
        namespaces=namespaces,
    )


def lease_rules(*, by_ranges: bool = False, further_verbs: Sequence[str] = ()) -> list[dict[str, Any]]:
    """For the namespace that a process has its leases in: these, and Events about them."""
    verbs = (*LEASE_VERBS, *(LEASE_VERBS_BY_RANGES if by_ranges else ()), *further_verbs)
    return [*rules_for([LEASES.group_resource], verbs), *rules_for([EVENTS], EVENT_VERBS)]


def ring_rules(ring: str, *, by_ranges: bool = False) -> list[dict[str, Any]]:
    """For a shard of the ring called `ring`: that one, and no other; rings are in no namespace."""
    rules = rules_for([CLUSTERRINGS.group_resource], RING_VERBS)
    if by_ranges:
        rules += rules_for([RING_ASSIGNMENTS.group_resource], ASSIGNMENT_VERBS)
    return [{**rule, "resourceNames": [ring]} for rule in rules]


def account_with(
    namespace: str,
    name: str,
    *,
    own: Sequence[Rule],
    objects: Sequence[Rule],
    cluster: Sequence[Rule] = (),
    namespaces: Sequence[str] = (),
) -> list[Manifest]:
    """A ServiceAccount that may do `own` in its namespace, `objects` in `namespaces` (none: in all), and `cluster`.

    `cluster` is what no namespace can grant: a ring is in none.  The names of roles that accounts of several namespaces
    may have side by side have the account's in them: a binding of one name would be taken from another's account.
    """
    account = (namespace, name)
    made: list[Manifest] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
        *grant("Role", {"name": name, "namespace": namespace}, own, account),
    ]
    named = {"name": f"sharding:objects:{namespace}:{name}"}
    if not namespaces:
        return [*made, *grant("ClusterRole", named, [*objects, *cluster], account)]
    for each in namespaces:
        made += grant("Role", {**named, "namespace": each}, objects, account)
    anywhere = {"name": f"sharding:ring-reader:{namespace}:{name}"}
    return [*made, *(grant("ClusterRole", anywhere, cluster, account) if cluster else ())]


def _has_status(resource: GroupResource) -> bool:
    """Custom resources and the workloads do; of the core group's the status is the cluster's own."""
    return bool(resource.group)


def part_of(resource: GroupResource, subresource: str) -> GroupResource:
    """A part of it as a rule has it: `pods/status`."""
    return GroupResource(resource.group, f"{resource.resource}/{subresource}")


def rules_for(resources: Iterable[GroupResource], verbs: Iterable[str]) -> list[dict[str, Any]]:
    """The same verbs for all of them: a rule for each API group."""
    groups: dict[str, list[str]] = {}
    for each in sorted(set(resources)):
        groups.setdefault(each.group, []).append(each.resource)
    once = dict.fromkeys(verbs)
    return [{"apiGroups": [group], "resources": names, "verbs": list(once)} for group, names in groups.items()]


def grant(kind: str, metadata: Mapping[str, Any], rules: Sequence[Rule], account: tuple[str, str]) -> list[Manifest]:
    """A `Role` or `ClusterRole`, and its binding to a ServiceAccount (namespace and name)."""
    namespace, name = account
    return [
        {"apiVersion": f"{RBAC_GROUP}/v1", "kind": kind, "metadata": dict(metadata), "rules": list(rules)},
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": f"{kind}Binding",
            "metadata": dict(metadata),
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]


# -- right by right ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource or a part of it; by `name` (empty: any), in a namespace (`None`: in all, or it has none)."""

    verb: str
    resource: GroupResource
    subresource: str = ""
    name: str = ""
    namespace: str | None = None

    @property
    def part(self) -> str:
        """The resource as a rule has it: `pods`, `pods/status`."""
        return self.resource.resource + (f"/{self.subresource}" if self.subresource else "")


def grants(rule: Rule, right: Right) -> bool:
    """Whether a rule grants a right, where it holds."""
    names = rule.get("resourceNames")
    return (
        right.resource.group in rule["apiGroups"]
        and right.part in rule["resources"]
        and not {right.verb, "*"}.isdisjoint(rule["verbs"])
        and (not names or right.name in names)
    )


def rights_of(namespace: str | None, rule: Rule) -> list[Right]:
    """What a rule grants in a namespace (`None`: in all)."""
    parts = [(group, *resource.partition("/")[::2]) for group in rule["apiGroups"] for resource in rule["resources"]]
    return [
        Right(verb, GroupResource(group, plural), subresource, name, namespace)
        for group, plural, subresource in parts
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or ("",)
    ]


def render_rules(rights: Iterable[Right]) -> list[str]:
    """As in a role: one rule for the resources of a group that lack the same verbs."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for each in rights:
        verbs.setdefault((each.resource.group, each.part, each.name), []).append(each.verb)
    rules: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for (group, resource, name), lacking in verbs.items():
        rules.setdefault((group, tuple(lacking), name), []).append(resource)
    return [
        f'- {{apiGroups: ["{group}"], resources: [{", ".join(resources)}]'
        + (f", resourceNames: [{name}]" if name else "")
        + f", verbs: [{', '.join(lacking)}]}}"
        for (group, lacking, name), resources in rules.items()
    ]
