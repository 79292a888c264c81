"""What an operator may need to do, read off what it was declared with.

The rules are RBAC's, resources named one by one.  They are an upper bound for
what the SDK does by itself and by `Context`; what a reconcile does by `ctx.api`,
or with kinds that it neither owns nor watches, is declared by `Operator.needs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.protocol.objects import GroupResource
from shardsdk.rbac import EVENT_VERBS, EVENTS, lease_rules, ring_rules, rules_for

READ: Final = ("get", "list", "watch")
#: `patch`: finalizers, a shard's labels.
MAIN: Final = (*READ, "patch")
STATUS: Final = ("patch",)
#: For owner references that block the owner's deletion.  Source: OwnerReferencesPermissionEnforcement.
FINALIZERS: Final = ("update",)
CHILDREN: Final = (*READ, "create", "patch", "delete")

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Permissions:
    """Rules of RBAC: `objects` for where the operator's objects are, `own` for the namespace that it runs in.

    `cluster` are those that no namespace can grant.
    """

    objects: tuple[Rule, ...]
    own: tuple[Rule, ...]
    cluster: tuple[Rule, ...] = ()


def permissions_of(
    main: Iterable[GroupResource],
    children: Iterable[GroupResource],
    watched: Iterable[GroupResource],
    *,
    with_status: Iterable[GroupResource] = (),
    further: Mapping[GroupResource, Iterable[str]] | None = None,
    ring: str | None = None,
    by_ranges: bool = False,
    own_rules: Iterable[Rule] = (),
    cluster_rules: Iterable[Rule] = (),
) -> Permissions:
    """What it takes to reconcile `main`, as a shard of `ring` or as an elected leader (`None`).

    `by_ranges`: the ring assigns ranges of hashes, so a shard reads who is named for which, and who holds which.
    `own_rules` and `cluster_rules` are further ones for its own namespace, and for the cluster.
    """
    main, children = set(main), set(children)
    wanted: dict[GroupResource, dict[str, None]] = {}

    def add(resources: Iterable[GroupResource], verbs: Iterable[str]) -> None:
        for each in resources:
            wanted.setdefault(each, {}).update(dict.fromkeys(verbs))

    add(main, MAIN)
    add(children, CHILDREN)
    add(watched, READ)
    add((_part(each, "status") for each in with_status), STATUS)
    add((_part(each, "finalizers") for each in main if children), FINALIZERS)
    for resource, verbs in (further or {}).items():
        add([resource], verbs)
    add([EVENTS], EVENT_VERBS)
    rules = [rule for each in sorted(wanted) for rule in rules_for([each], wanted[each])]
    reads_ring = ring_rules(ring, by_ranges=by_ranges) if ring else ()
    own = (*lease_rules(by_ranges=by_ranges), *own_rules)
    return Permissions(tuple(_joined(rules)), own, (*reads_ring, *cluster_rules))


def _part(resource: GroupResource, subresource: str) -> GroupResource:
    return GroupResource(resource.group, f"{resource.resource}/{subresource}")


def _joined(rules: Iterable[Rule]) -> list[Rule]:
    """One rule for resources of one group that have the same verbs."""
    joined: dict[tuple[str, tuple[str, ...]], Rule] = {}
    for rule in rules:
        key = (rule["apiGroups"][0], tuple(rule["verbs"]))
        there = joined.setdefault(key, {**rule, "resources": []})
        there["resources"] = [*there["resources"], *rule["resources"]]
    return list(joined.values())
