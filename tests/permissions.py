"""What RBAC files grant, and what an API server's audit log says was used.

Does: follow the bindings of a file to each ServiceAccount's permissions, read
an audit log's calls, and compare the two.  Refuses: wildcards and aggregated
roles; our files have none, and a comparison with them would prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localcluster.audit import read_audit_log

#: Every request once, when it is answered; watches when they begin.
AUDIT_POLICY = {"omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource; an empty `namespace` or `name` means any.

    `resource` is written `<plural>[.<group>][/<subresource>]`.
    """

    resource: str
    verb: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """A request that someone made; `name` is empty for lists, watches and most creates."""

    resource: str
    verb: str
    namespace: str = ""
    name: str = ""
    allowed: bool = True


@dataclass(frozen=True, slots=True)
class Comparison:
    """`missing`: calls that no permission covers; `unused`: permissions that no call needed."""

    missing: tuple[Call, ...]
    unused: tuple[Permission, ...]


def read_permissions(documents: Iterable[Mapping[str, Any]]) -> dict[str, set[Permission]]:
    """Permissions by ServiceAccount, written `<namespace>/<name>`.

    Raises: ValueError for a wildcard, or a binding to a role that isn't among `documents`.
    """
    roles: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    bindings = []
    for document in documents:
        kind, metadata = document["kind"], document["metadata"]
        if kind in ("Role", "ClusterRole"):
            roles[kind, metadata.get("namespace", ""), metadata["name"]] = document["rules"]
        elif kind in ("RoleBinding", "ClusterRoleBinding"):
            bindings.append(document)
    granted: dict[str, set[Permission]] = {}
    for binding in bindings:
        namespace = binding["metadata"].get("namespace", "")
        reference = binding["roleRef"]
        key = reference["kind"], namespace if reference["kind"] == "Role" else "", reference["name"]
        if key not in roles:
            raise ValueError(f"{binding['metadata']['name']} binds {reference['kind']} {reference['name']}, not given")
        for subject in binding["subjects"]:
            account = granted.setdefault(f"{subject['namespace']}/{subject['name']}", set())
            account |= expand_rules(roles[key], namespace)
    return granted


def expand_rules(rules: Iterable[Mapping[str, Any]], namespace: str = "") -> set[Permission]:
    """Every single permission that `rules` grant in `namespace` (empty: everywhere)."""
    permissions = {
        Permission(join_resource(group, resource), verb, namespace, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
    for permission in permissions:
        if "*" in f"{permission.resource}{permission.verb}{permission.name}":
            raise ValueError(f"{permission} grants more than it says")
    return permissions


def join_resource(group: str, resource: str) -> str:
    """`("apps", "deployments/scale")` as `deployments.apps/scale`."""
    plural, slash, subresource = resource.partition("/")
    return f"{plural}.{group}{slash}{subresource}" if group else resource


def read_files(*paths: Path) -> list[Mapping[str, Any]]:
    """Every document of these YAML files."""
    return [document for path in paths for document in yaml.safe_load_all(path.read_text()) if document]


def compare(permissions: Iterable[Permission], calls: Iterable[Call]) -> Comparison:
    """Hold what was granted against what was done."""
    permissions, calls = set(permissions), set(calls)
    missing = [call for call in calls if not any(covers(permission, call) for permission in permissions)]
    unused = [permission for permission in permissions if not any(covers(permission, call) for call in calls)]
    return Comparison(tuple(sorted(missing)), tuple(sorted(unused)))


def covers(permission: Permission, call: Call) -> bool:
    """Whether `permission` is enough for `call`."""
    return (
        (permission.resource, permission.verb) == (call.resource, call.verb)
        and permission.namespace in ("", call.namespace)
        and permission.name in ("", call.name)
    )


def read_calls(log: Path, account: str) -> set[Call]:
    """The calls on resources that the ServiceAccount `<namespace>/<name>` made, by that audit log."""
    user = "system:serviceaccount:" + account.replace("/", ":")
    calls = set()
    for event in read_audit_log(log):
        target = event.get("objectRef")
        if event["user"]["username"] != user or target is None:
            continue
        subresource = target.get("subresource", "")
        resource = join_resource(target.get("apiGroup", ""), "/".join(filter(None, (target["resource"], subresource))))
        allowed = event.get("annotations", {}).get("authorization.k8s.io/decision") != "forbid"
        calls.add(Call(resource, event["verb"], target.get("namespace", ""), target.get("name", ""), allowed))
    return calls
