"""What a shard may do: the manifests of its ServiceAccount, its roles and their bindings, as text to apply.

Does: render rbac/shard.yaml for any controller.  Refuses: wildcards; resources
are named one by one.  The text is YAML by hand, because a shard needs no YAML
library; what is not a plain word is quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource

#: Every shard: `list` and `watch` its objects, and `patch` main ones, to let go of them.
MAIN_VERBS: Final = ("list", "watch", "patch")
CONTROLLED_VERBS: Final = ("list", "watch")
#: Its lease, and Events about it.
LEASE_VERBS: Final = ("get", "create", "patch")
EVENT_VERBS: Final = ("create", "patch")
#: And its ring, to compare what that lists with what it works on.
RING_VERBS: Final = ("get",)

_RBAC: Final = "rbac.authorization.k8s.io"
_PLAIN: Final = re.compile(r"[a-z][a-z0-9.:-]*[a-z0-9]")
#: Words that YAML reads as something else than text.  Source: YAML 1.1, "bool" and "null".
_NO_TEXT: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null"})


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


@dataclass(frozen=True, slots=True)
class _Rule:
    group: str
    resources: Sequence[str]
    verbs: Sequence[str]
    names: Sequence[str] = ()


def render_shard_role(role: ShardRole) -> str:
    """ServiceAccount, roles and bindings as YAML documents."""
    account = f"apiVersion: v1\nkind: ServiceAccount\n{_metadata(role.name, role.namespace)}"
    own = [
        _Rule("coordination.k8s.io", ["leases"], LEASE_VERBS),
        _Rule("", ["events"], EVENT_VERBS),
    ]
    main = _by_group(role.main, _join(MAIN_VERBS, role.further_main_verbs))
    controlled = _by_group(role.controlled, _join(CONTROLLED_VERBS, role.further_controlled_verbs))
    objects = [*main, *controlled]
    ring = _Rule(CLUSTERRINGS.group, [CLUSTERRINGS.plural], RING_VERBS, [role.ring])
    #: A role for the objects beside that for the leases, in one namespace, has a name of its own.
    name = role.name if role.watch_namespace is None else f"{role.name}-objects"
    documents = [
        account,
        _role("Role", role.name, role.namespace, own),
        _binding("Role", role.name, role.namespace, role),
    ]
    if role.watch_namespace is None:
        documents += [
            _role("ClusterRole", name, None, [*objects, ring]),
            _binding("ClusterRole", name, None, role),
        ]
    else:
        # A ring is in no namespace; a cluster role's name is one for all namespaces.
        reads_ring = f"sharding:ring-reader:{role.namespace}:{role.name}"
        documents += [
            _role("Role", name, role.watch_namespace, objects),
            _binding("Role", name, role.watch_namespace, role),
            _role("ClusterRole", reads_ring, None, [ring]),
            _binding("ClusterRole", reads_ring, None, role),
        ]
    return "---\n".join(documents)


def _role(kind: str, name: str, namespace: str | None, rules: Iterable[_Rule]) -> str:
    text = f"apiVersion: {_RBAC}/v1\nkind: {kind}\n{_metadata(name, namespace)}rules:\n"
    for rule in rules:
        text += f"- apiGroups: {_list([rule.group])}\n"
        text += f"  resources: {_list(rule.resources)}\n"
        text += f"  resourceNames: {_list(rule.names)}\n" if rule.names else ""
        text += f"  verbs: {_list(rule.verbs)}\n"
    return text


def _binding(kind: str, name: str, namespace: str | None, role: ShardRole) -> str:
    return (
        f"apiVersion: {_RBAC}/v1\nkind: {kind}Binding\n{_metadata(name, namespace)}"
        f"roleRef:\n  apiGroup: {_RBAC}\n  kind: {kind}\n  name: {_word(name)}\n"
        f"subjects:\n- kind: ServiceAccount\n  name: {_word(role.name)}\n  namespace: {_word(role.namespace)}\n"
    )


def _metadata(name: str, namespace: str | None) -> str:
    where = "" if namespace is None else f"  namespace: {_word(namespace)}\n"
    return f"metadata:\n  name: {_word(name)}\n{where}"


def _by_group(resources: Iterable[GroupResource], verbs: Sequence[str]) -> list[_Rule]:
    groups: dict[str, list[str]] = {}
    for each in sorted(set(resources)):
        groups.setdefault(each.group, []).append(each.resource)
    return [_Rule(group, names, verbs) for group, names in groups.items()]


def _join(always: Sequence[str], further: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*always, *further]))


def _list(words: Iterable[str]) -> str:
    return f"[{', '.join(map(_word, words))}]"


def _word(text: str) -> str:
    """`text` as YAML: in quotes unless it can only be read as text."""
    return text if _PLAIN.fullmatch(text) and text not in _NO_TEXT else json.dumps(text)
