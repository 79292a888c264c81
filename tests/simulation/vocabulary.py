"""What the simulated cluster serves, and the words that its parts share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import msgspec

from shardsdk.protocol.labels import API_GROUP, API_VERSION, parse_ring_name
from shardsdk.protocol.objects import ObjectMeta, Resource
from shardsdk.protocol.ranges import BY_RANGES, HashBy
from tests.simulation.storage import Version

#: Main objects with children, their children, main objects without any.
WORKS: Final = Resource("sim.example.dev", "v1", "works", "Work")
PIECES: Final = Resource("sim.example.dev", "v1", "pieces", "Piece")
PLAINS: Final = Resource("sim.example.dev", "v1", "plains", "Plain")

#: The ring of works and pieces, and the ring of plains.
FAMILY: Final = parse_ring_name("family")
PLAIN: Final = parse_ring_name("plain")
RINGS: Final = {FAMILY.ring: FAMILY, PLAIN.ring: PLAIN}
MAIN_OF: Final = {FAMILY.ring: WORKS, PLAIN.ring: PLAINS}
RING_OF: Final = {WORKS: FAMILY, PIECES: FAMILY, PLAINS: PLAIN}
RING_OF_KIND: Final = {resource.kind: ring for resource, ring in RING_OF.items()}

SHARDS_NAMESPACES: Final = ("shards", "more-shards")
NAMESPACE_NAMES: Final = ("blue", "green")
#: And so many where rings assign by ranges: a range is never narrower than a namespace.
MANY_NAMESPACES: Final = tuple(f"team-{number}" for number in range(12))
#: What a ring by ranges hashes: an owner and what it controls lie together by their namespace alone.
HASHES: Final = {FAMILY.ring: HashBy.NAMESPACE, PLAIN.ring: HashBy.UID}
#: Label of the namespaces that the ring of works selects.
IN_RING: Final = "sim.example.dev/in-ring"
#: Annotation in which a reconcile writes who it was, so that every handover is followed by a write.
RECONCILED: Final = "sim.example.dev/reconciled"
#: Labels of a child that waits to be adopted: by which work, and as which of its keys.
CLAIMED_BY: Final = "sim.example.dev/claimed-by"
KEY: Final = "sim.example.dev/key"
#: With this begins the key of a child that a backup restored; no work asks for it, none deletes it.
STRAY: Final = "s"
#: Annotation of a child that the index of its controller's cache raises for.
POISONED: Final = "sim.example.dev/poisoned"
#: Finalizer of the works that are cleaned up before they go.
FINALIZER: Final = "sim.example.dev/clean-up"
#: How fast clocks go, the slowest and the fastest: they differ by less than the margin of a lease.
RATES: Final = (0.95, 1.05)

#: How often each named point of the product was reached, see marks.
Marks = dict[str, int]


class WorkSpec(msgspec.Struct, frozen=True):
    """Which children a work wants: one for each key; whether it looks for some to adopt, and cleans up at its end."""

    keys: list[str] = msgspec.field(default_factory=list)
    serial: int = 0
    claims: bool = False
    cleans: bool = False


class Work(msgspec.Struct, frozen=True):
    """A main object."""

    metadata: ObjectMeta
    spec: WorkSpec = WorkSpec()


class PieceSpec(msgspec.Struct, frozen=True):
    """Which key of its owner a child stands for."""

    key: str = ""


class Piece(msgspec.Struct, frozen=True):
    """A controlled object."""

    metadata: ObjectMeta
    spec: PieceSpec = PieceSpec()


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of every lease in one run, in seconds, and how quick the run's sharder is."""

    lease: float
    renew: float
    retry: float

    @property
    def scale(self) -> float:
        """How long things take, compared with Kubernetes' defaults."""
        return self.lease / 15.0

    def shortened(self, share: float) -> Timings:
        """A lease of about this share of the duration, of whole seconds, renewed in the same proportion."""
        lease = float(max(3, int(share * self.lease)))
        return Timings(lease, self.renew * lease / self.lease, self.retry * lease / self.lease)


@dataclass(frozen=True, slots=True)
class Doing:
    """A reconcile: which process of which shard reconciles which object, and as the how manieth of all.

    `plain`: by a plain function, which can only be told to end.
    """

    shard: str
    process: str
    resource: Resource
    uid: str
    number: int
    fenced: bool
    plain: bool = False

    def __str__(self) -> str:
        return f"{self.process} (reconcile {self.number} of {self.uid})"


@dataclass(slots=True)
class Violation:
    """Something that must not happen."""

    rule: str
    at: float
    message: str

    def __str__(self) -> str:
        return f"{self.at:9.3f}  {self.rule}: {self.message}"


@dataclass(slots=True)
class Stats:
    """How much a run has exercised."""

    reconciles: int = 0
    handovers: int = 0
    takeovers: int = 0
    drains: int = 0
    commits: int = 0
    scenarios: int = 0
    settled_after: float = 0.0
    marks: Marks = field(default_factory=dict)
    #: The longest wait of each kind while nothing hindered its ring, in seconds.
    waits: dict[str, float] = field(default_factory=dict)


def key_of(piece: Version) -> str:
    """Which key of its owner a stored child stands for, even if it fits no model any more."""
    key: str | list[str] = piece.doc["spec"]["key"]
    return key if isinstance(key, str) else key[0]


@cache  # a run has few names, and asks at each write of a lease
def namespace_of_shard(name: str) -> str:
    """Where the lease of a shard is; shards of a ring live in several namespaces."""
    return SHARDS_NAMESPACES[sum(name.encode()) % len(SHARDS_NAMESPACES)]


def ring_object(name: str, *, select_namespaces: bool, ranges: bool = False) -> dict[str, Any]:
    """A ClusterRing; by labels, or by ranges of hashes."""
    resources: list[dict[str, Any]] = [{"group": MAIN_OF[name].group, "resource": MAIN_OF[name].plural}]
    if name == FAMILY.ring:
        resources[0]["controlledResources"] = [{"group": PIECES.group, "resource": PIECES.plural}]
    spec: dict[str, Any] = {"resources": resources}
    if ranges:
        spec |= {"assignment": BY_RANGES, "hashBy": HASHES[name].value}
    if select_namespaces:
        spec["namespaceSelector"] = {"matchLabels": {IN_RING: "yes"}}
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "ClusterRing",
        "metadata": {"name": name},
        "spec": spec,
    }


def selector_of(labels: dict[str, str]) -> list[dict[str, Any]]:
    """What `matchLabels` says, as `matchExpressions`."""
    return [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
