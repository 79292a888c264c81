"""What an operator may need to do, read off what it was declared with.

The rules are RBAC's, resources named one by one.  They are an upper bound for
what the SDK does by itself and by `Context`; what a reconcile does by `ctx.api`,
or with kinds that it neither owns nor watches, is declared by `Operator.needs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.admission.configuration import cluster_rules, development_name, development_rules, own_rules
from shardsdk.admission.settings import Serving
from shardsdk.admission.webhook import Webhook
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.rbac import EVENT_VERBS, EVENTS, FINALIZERS_VERBS, lease_rules, part_of, ring_rules, rules_for
from shardsdk.reconcile.spec import ControllerSpec

READ: Final = ("get", "list", "watch")
#: `patch`: finalizers, a shard's labels.
MAIN: Final = (*READ, "patch")
STATUS: Final = ("patch",)
CHILDREN: Final = (*READ, "create", "patch", "delete")
#: An elected operator, of Leases: whether shards of it are at work.  A sharded one may as well, though it does not: its
#: role takes the place of the elected form's, whose candidates are to see it.
SHARDS: Final = ("list",)

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Permissions:
    """Rules of RBAC: `objects` for where the operator's objects are, `own` for the namespace that it runs in.

    `cluster` are those that no namespace can grant: for what is in none.
    """

    objects: tuple[Rule, ...]
    own: tuple[Rule, ...]
    cluster: tuple[Rule, ...] = ()


def permissions_of(
    specs: Iterable[ControllerSpec[Any]],
    *,
    with_status: Iterable[Resource] = (),
    further: Mapping[Resource | GroupResource, Iterable[str]] | None = None,
    ring: str | None = None,
    by_ranges: bool = False,
    own_rules: Iterable[Rule] = (),
    cluster_rules: Iterable[Rule] = (),
) -> Permissions:
    """What it takes to run `specs`, as a shard of `ring` or as an elected leader (`None`).

    `with_status` are the main resources that have one.  `further` is what is needed besides; a GroupResource of which
    nothing else says more is taken for one in namespaces.
    `by_ranges`: the ring assigns ranges of hashes, so a shard reads who is named for which, and who holds which.
    `own_rules` and `cluster_rules` are further ones for its own namespace, and for the cluster.
    """
    wanted: dict[GroupResource, dict[str, None]] = {}
    in_no_namespace: set[GroupResource] = set()

    def add(resource: Resource | GroupResource, verbs: Iterable[str], part: str = "") -> None:
        group = resource.group_resource if isinstance(resource, Resource) else resource
        if isinstance(resource, Resource) and not resource.namespaced:
            in_no_namespace.add(_whole(group))
        wanted.setdefault(part_of(group, part) if part else group, {}).update(dict.fromkeys(verbs))

    for spec in specs:
        main = spec.main.resource
        add(main, MAIN)
        if spec.children:
            add(main, FINALIZERS_VERBS, "finalizers")
        if not main.namespaced:
            in_no_namespace.add(EVENTS)  # those about it are in a namespace where none of its objects need be
        for child in spec.children:
            add(child.resource, CHILDREN)
        for watch in spec.watched:
            add(watch.source.resource, READ)
    for each in with_status:
        add(each, STATUS, "status")
    for resource, verbs in (further or {}).items():
        add(resource, verbs)
    add(EVENTS, EVENT_VERBS)

    def rules(*, namespaced: bool) -> list[Rule]:
        named = (each for each in sorted(wanted) if (_whole(each) not in in_no_namespace) is namespaced)
        return _joined(rule for each in named for rule in rules_for([each], wanted[each]))

    reads_ring = ring_rules(ring, by_ranges=by_ranges) if ring else ()
    own = (*lease_rules(by_ranges=by_ranges, further_verbs=SHARDS), *own_rules)
    cluster = (*rules(namespaced=False), *reads_ring, *cluster_rules)
    return Permissions(tuple(rules(namespaced=True)), own, cluster)


def _whole(resource: GroupResource) -> GroupResource:
    """What `pods/status` is a part of."""
    return GroupResource(resource.group, resource.resource.partition("/")[0])


def _joined(rules: Iterable[Rule]) -> list[Rule]:
    """One rule for resources of one group that have the same verbs."""
    joined: dict[tuple[str, tuple[str, ...]], Rule] = {}
    for rule in rules:
        key = (rule["apiGroups"][0], tuple(rule["verbs"]))
        there = joined.setdefault(key, {**rule, "resources": []})
        there["resources"] = [*there["resources"], *rule["resources"]]
    return list(joined.values())


def serving_rules(operator: str, webhooks: Sequence[Webhook], serving: Serving | None) -> tuple[list[Rule], list[Rule]]:
    """Rules for its own namespace, and for the cluster; none where nothing is served (`None`).

    Certificates of somebody else's making are theirs to keep and to have trusted.
    """
    if serving is None or not webhooks:
        return [], []
    if serving.install:
        return [], development_rules(development_name(operator), webhooks)
    if serving.cert_dir:
        return [], []
    return own_rules(operator), cluster_rules(operator, webhooks)
