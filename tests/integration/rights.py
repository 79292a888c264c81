"""What sharder and shards of a test may do: no more than the project's own files grant.

Refuses: to return before the API server goes by it; roles take a moment to be in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import yaml

from localcluster import AdminClient
from sharder.rbac import ring_role, ring_role_name
from shardsdk.protocol.objects import GroupResource
from tests.integration.scripted import Object
from tests.integration.world import Family, group_and_plural

SYSTEM: Final = "sharding-system"
SHARD_MANIFEST: Final = Path(__file__).parents[2] / "rbac" / "shard.yaml"
_ROLES: Final = "rbac.authorization.k8s.io/v1/clusterroles"
_BINDINGS: Final = "rbac.authorization.k8s.io/v1/clusterrolebindings"


class Rights:
    """The roles of one test; `withdraw` takes them away."""

    def __init__(self, admin: AdminClient, namespace: str) -> None:
        self._admin = admin
        self._namespace = namespace
        self._granted: set[str] = set()

    async def grant_sharder(self, ring: str, resources: Iterable[str], verbs: Sequence[str] | None = None) -> None:
        """Let the sharder place `resources`, as `sharder rbac` says, or only with `verbs`."""
        named = [GroupResource(*group_and_plural(resource)) for resource in resources]
        role, binding = ring_role(ring, named)
        if verbs is not None:
            for rule in role["rules"]:
                rule["verbs"] = list(verbs)
        await self._put(ring_role_name(ring), role, binding)
        for resource in named:
            for verb in role["rules"][0]["verbs"]:
                await self._admin.until_allowed(
                    verb, f"{resource.group}/v1/{resource.resource}", user=f"system:serviceaccount:{SYSTEM}:sharder"
                )

    async def grant_shards(self, families: Sequence[Family]) -> None:
        """What rbac/shard.yaml grants to the shards of its example, for those of this test: ServiceAccount `shard`."""
        documents = list(yaml.safe_load_all(SHARD_MANIFEST.read_text()))
        leases = next(each for each in documents if each["kind"] == "Role")["rules"]
        cluster = next(each for each in documents if each["kind"] == "ClusterRole")["rules"]
        main, finalizers, controlled, events, ring = cluster
        # The example's ring has another name than those of this test.
        rules = [*leases, events, {**ring, "resourceNames": []}]
        for family in families:
            rules.append(_rule(family.main, main["verbs"]))
            rules.append(_rule(family.main, finalizers["verbs"], "/finalizers"))
            rules += [_rule(resource, controlled["verbs"]) for resource in family.controlled]
        if await self._admin.find("v1/serviceaccounts", "shard", self._namespace) is None:
            await self._admin.create("v1/serviceaccounts", {"metadata": {"name": "shard"}}, self._namespace)
        name = f"shards-{self._namespace}"
        subject = {"kind": "ServiceAccount", "name": "shard", "namespace": self._namespace}
        role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        await self._put(
            name,
            {"metadata": {"name": name}, "rules": rules},
            {"metadata": {"name": name}, "roleRef": role_ref, "subjects": [subject]},
        )
        user = f"system:serviceaccount:{self._namespace}:shard"
        await self._admin.until_allowed("patch", families[-1].main, user=user)

    async def withdraw(self) -> None:
        """Take all of it away."""
        for name in self._granted:
            await self._admin.delete(_BINDINGS, name)
            await self._admin.delete(_ROLES, name)

    async def _put(self, name: str, role: Object, binding: Object) -> None:
        if name in self._granted:
            await self._admin.patch(_ROLES, name, role)
            return
        self._granted.add(name)
        await self._admin.create(_ROLES, role)
        await self._admin.create(_BINDINGS, binding)


def _rule(resource: str, verbs: Sequence[str], part: str = "") -> Object:
    group, plural = group_and_plural(resource)
    return {"apiGroups": [group], "resources": [plural + part], "verbs": list(verbs)}
