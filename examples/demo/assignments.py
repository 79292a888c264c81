"""The two ways in which the demo's ring assigns its objects, and what is told differently of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from examples.demo.watching import CONFIGMAPS, SECRETS
from localcluster import ControlPlane
from localcluster.installation import ROOT
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.ranges import BY_LABELS, BY_RANGES, HashBy
from shardsdk.rbac import ShardRole, shard_role

RING: Final = "checksum"
#: Where the shards have their Leases.
NAMESPACE: Final = "default"
_RESOURCES: Final = [
    {"group": "", "resource": "secrets", "controlledResources": [{"group": "", "resource": "configmaps"}]}
]
#: The minor version of Kubernetes that brought shardSelector.
_FILTERS_SINCE: Final = 36
#: A namespace is never split, so that ranges take some to be shared.
_TEAMS: Final = tuple(f"team-{number:02}" for number in range(60))


@dataclass(frozen=True, slots=True)
class Assignment:
    """One of them: `name` as a ring's `spec.assignment` spells it.

    `namespaces` are those of the Secrets; `story` and `hints` are lines to print, these with the placeholders
    {ring} and {label}.
    """

    name: str
    namespaces: Sequence[str]
    spec: Mapping[str, Any]
    story: Sequence[str]
    hints: Sequence[str]

    @property
    def by_ranges(self) -> bool:
        """Whether hashes say whose an object is."""
        return self.name == BY_RANGES

    @property
    def ring(self) -> dict[str, Any]:
        """`spec` of the ring."""
        # By their names: a shard of a ring by ranges knows nothing else of them.
        named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(self.namespaces)}
        return {"resources": _RESOURCES, "namespaceSelector": {"matchExpressions": [named]}, **self.spec}

    def gates(self, minor: int | None) -> tuple[dict[str, bool], Sequence[str]]:
        """Feature gates of API servers of Kubernetes 1.`minor` (`None`: unknown), and what to tell of them."""
        if not self.by_ranges:
            return {}, ()
        if minor is None or minor < _FILTERS_SINCE:
            return {}, (f"This API server is older than 1.{_FILTERS_SINCE}: each shard receives every object, and drops"
                        " what is not its own.",)  # fmt: skip
        return {"ShardedListAndWatch": True}, (
            "The API server sends each shard its own objects alone (shardSelector).",
        )

    async def prepare(self, plane: ControlPlane) -> None:
        """Make what the shards may do, and the namespaces of the Secrets."""
        if not self.by_ranges:
            await plane.apply(ROOT / "rbac" / "shard.yaml")
            return
        role = ShardRole(
            RING, "checksum", NAMESPACE, [SECRETS.group_resource], [CONFIGMAPS.group_resource],
            further_controlled_verbs=("create", "patch"), by_ranges=True,
        )  # fmt: skip
        teams = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in self.namespaces]
        await plane.apply(stdin=yaml.safe_dump_all([*shard_role(role), *teams]))

    def hints_for(self, kubectl: str) -> list[str]:
        """What to type to play with it; `kubectl` is how the programs of this control plane call it."""
        label = parse_ring_name(RING).shard
        return [f"alias k='{kubectl}'", *(hint.format(ring=RING, label=label) for hint in self.hints)]


LABELS: Final = Assignment(
    BY_LABELS,
    namespaces=(NAMESPACE,),
    spec={},
    story=("The ring assigns by labels: each object carries its shard's name, and a handover rewrites it.",),
    hints=(
        "k get clusterring {ring} -o wide",
        "k get leases -L alpha.sharding.timebertt.dev/state",
        "k get secrets,configmaps -L {label}",
        "k create secret generic mine --from-literal=key=value",
        "k label secret mine {label}-      # the sharder puts it back",
        "k delete lease shard-1             # its shard makes it again, and nothing moves",
    ),
)

RANGES: Final = Assignment(
    BY_RANGES,
    namespaces=_TEAMS,
    spec={"assignment": BY_RANGES, "hashBy": HashBy.NAMESPACE.value},
    story=(
        "The ring assigns by ranges of hashes: whose an object is follows from its namespace, the RingAssignment and"
        " the shards' Leases.",
        "Nobody writes on an object, no webhook is asked, and the sharder has no right on secrets or configmaps.",
    ),
    hints=(
        "k get clusterring {ring} -o wide",
        "k get ringassignment {ring} -o wide",
        "k get ringassignment {ring} -o yaml",
        r"k get leases -o custom-columns='SHARD:.metadata.name,"
        r"HOLDS:.metadata.annotations.alpha\.sharding\.timebertt\.dev/held-ranges'",
        "k create secret generic mine --from-literal=key=value -n team-07",
        "k wait --for=create configmap/mine-checksum -n team-07 --timeout=60s",
        "k delete ringassignment {ring}     # the sharder writes it anew from the Leases, and nothing moves",
        "k delete lease shard-1             # its shard makes it again, and nothing moves",
    ),
)

ASSIGNMENTS: Final = {each.name: each for each in (LABELS, RANGES)}
