"""The ring of a run, by either way of assigning: what it says, where its objects are, and who should have them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Mapping
from typing import Any, Final

from localcluster.installation import ROOT
from sharder.core.hashring import HashRing
from sharder.core.keys import main_key
from tests.chaos.history import ASSIGNMENTS, CHILDREN, OWNERS, Version
from tests.chaos.holdings import named_for
from tests.integration.ranged_shard import point_of

RING: Final = "checksum"
#: Of shards and their leases; of objects, too, where the ring assigns by labels.
NAMESPACE: Final = "default"
#: Of objects where ranges of hashes of these are assigned: several for each shard.
RANGED_NAMESPACES: Final = tuple(f"chaos-{number:02}" for number in range(24))
_NAME: Final = "kubernetes.io/metadata.name"
_RESOURCES: Final = [
    {"group": "", "resource": "secrets", "controlledResources": [{"group": "", "resource": "configmaps"}]}
]

Current = Mapping[tuple[str, str], Version]


def selecting(*namespaces: str) -> dict[str, Any]:
    """A selector of these."""
    return {"matchExpressions": [{"key": _NAME, "operator": "In", "values": list(namespaces)}]}


class LabelledRing:
    """A ring that assigns each object by a label."""

    by_ranges = False
    namespaces: tuple[str, ...] = (NAMESPACE,)

    @property
    def spec(self) -> dict[str, Any]:
        """What it says."""
        return {"resources": _RESOURCES, "namespaceSelector": selecting(*self.namespaces)}

    def namespace_of(self, number: int) -> str:
        """Where an object is made."""
        return self.namespaces[number % len(self.namespaces)]

    async def roles(self) -> str:
        """Manifests of what its shards may do."""
        return (ROOT / "rbac" / "shard.yaml").read_text()

    def placed(self, current: Current, living: Collection[str]) -> bool:
        """Whether every object is where it belongs."""
        ring = HashRing(living)
        return all(
            each.shard == ring.owner(main_key("", "Secret", each.namespace, name)) and not each.drain
            for (resource, name), each in current.items()
            if resource == OWNERS
        )


class RangedRing(LabelledRing):
    """A ring that assigns ranges of hashes of namespaces."""

    by_ranges = True
    namespaces = RANGED_NAMESPACES

    @property
    def spec(self) -> dict[str, Any]:
        """What it says."""
        return {"assignment": "Ranges", "hashBy": "Namespace", **super().spec}

    async def roles(self) -> str:
        """Manifests of what its shards may do."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shardsdk", "rbac", "--assignment", "Ranges", "--ring", RING, "--main", "secrets",
            "--controlled", "configmaps", "--namespace", NAMESPACE, stdout=asyncio.subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        return (await process.communicate())[0].decode()

    def placed(self, current: Current, living: Collection[str]) -> bool:
        """Whether who holds each object is named for it, and each shard has some."""
        assignment = current.get((ASSIGNMENTS, RING))
        if assignment is None:
            return False
        owners = {each.namespace: each.shard for (resource, _), each in current.items() if resource == OWNERS}
        named = {each: named_for(assignment, point_of(each)) for each in owners}
        return owners == named and set(owners.values()) == set(living)


RINGS: Final = {"Labels": LabelledRing(), "Ranges": RangedRing()}


def settled(ring: LabelledRing, current: Current, living: Collection[str], children: int) -> bool:
    """Whether every object is where it belongs, with its children, and made to its user's last wish."""
    made: dict[str, list[Any]] = {}
    for (resource, _), each in current.items():
        if resource == CHILDREN and each.owner is not None:
            made.setdefault(each.owner, []).append((each.shard, each.value))
    return ring.placed(current, living) and all(
        made.get(each.uid, []) == [(each.shard, each.value)] * children
        for (resource, _), each in current.items()
        if resource == OWNERS
    )
