"""Names that go over the wire: API group, lease labels, object labels.

A ring's two object labels are derived from its name; a name that does not fit
is an error with a remedy, never a silently shortened label.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shardsdk.errors import InvalidRingName
from shardsdk.protocol.names import is_dns_subdomain

API_GROUP: Final = "sharding.timebertt.dev"
API_VERSION: Final = "v1alpha1"
RING_KIND: Final = "ClusterRing"
RING_PLURAL: Final = "clusterrings"

SYSTEM_NAMESPACE: Final = "sharding-system"
SHARDER_SERVICE_ACCOUNT: Final = "sharder"

#: Lease label; its value is the ring's name.
LEASE_RING_LABEL: Final = "alpha.sharding.timebertt.dev/clusterring"
#: Lease label of the Go library from v0.9 on, in place of ours: its shards work by other labels of objects.
LEASE_CONTROLLERRING_LABEL: Final = "alpha.sharding.timebertt.dev/controllerring"
#: Lease label for people; decisions never read it.
LEASE_STATE_LABEL: Final = "alpha.sharding.timebertt.dev/state"
#: Lease label: the Lease is that of a leader election; its value says whose.
LEADER_LABEL: Final = "alpha.sharding.timebertt.dev/leader"
#: Its value for sharders, of which one is to lead in a cluster, whatever its Lease is called.
LEADS_SHARDER: Final = "sharder"
#: Lease annotation that tells two processes of one shard name apart: `<instance>@<renewTime>`.
INSTANCE_ANNOTATION: Final = "alpha.sharding.timebertt.dev/instance"
#: Lease annotation: whoever wrote this renewTime, its value, refuses every write once the lease ran out.
FENCED_ANNOTATION: Final = "alpha.sharding.timebertt.dev/fenced"
#: Lease annotation: whoever wrote this renewTime, its value, is about to leave: it takes nothing new.
LEAVING_ANNOTATION: Final = "alpha.sharding.timebertt.dev/leaving"
#: Lease annotation of the write that leaves the lease: how the process ended, where that was not in order:
#: `failed@<renewTime>`.
ENDED_ANNOTATION: Final = "alpha.sharding.timebertt.dev/ended"
#: Lease annotation: which resources the holder reconciles as main ones, or did when it left the lease to the next
#: process of its name: `<resource>[.<group>],…@<renewTime>`.
MAIN_RESOURCES_ANNOTATION: Final = "alpha.sharding.timebertt.dev/main-resources"
#: Lease annotation: the sharder made the Lease for a name that had none, and nobody has taken it since while its value,
#: from a write of the sharder's, is the Lease's leaseTransitions.
PLACEHOLDER_ANNOTATION: Final = "alpha.sharding.timebertt.dev/placeholder"
#: Holder of a shard's lease while the sharder moves that shard's objects.
SHARDER_HOLDER: Final = "shardlease-controller"

#: Annotations of webhook configurations: AKS adds to the namespaceSelector of any that has them not, and does it again
#: when it is taken out.  Source: Azure/AKS, issue 4002.
UNCHANGED_BY_AKS: Final = {"admissions.enforcer/disabled": "true"}

SHARD_LABEL_PREFIX: Final = "shard.alpha.sharding.timebertt.dev/"
DRAIN_LABEL_PREFIX: Final = "drain.alpha.sharding.timebertt.dev/"
#: Only the presence of the drain label counts; this is what we write.
DRAIN_VALUE: Final = "true"

#: A label's name part and a label's value have at most 63 characters.
#: Source: Kubernetes, "Labels and Selectors", syntax and character set.
LABEL_MAX_LENGTH: Final = 63
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class RingLabels:
    """The two object labels of one ring.

    `shard` holds the shard's name as its value; of `drain` only presence counts.
    """

    ring: str
    shard: str
    drain: str


@lru_cache(maxsize=1024)
def parse_ring_name(name: str) -> RingLabels:
    """Derive the labels of the ring called `name`.

    Raises: InvalidRingName when the name has more than 63 characters, or when
    its truncated suffix would not be a valid label name.
    """
    if not name or len(name) > LABEL_MAX_LENGTH:
        raise InvalidRingName(
            f"ring name {name!r} has {len(name)} characters; the lease label holds it as its value,"
            f" so use 1 to {LABEL_MAX_LENGTH}"
        )
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    suffix = f"clusterring-{digest}-{name}"[:LABEL_MAX_LENGTH]
    if not is_label_name(suffix):
        raise InvalidRingName(
            f"ring name {name!r} gives the label name {suffix!r}, which does not start and end with a"
            " letter or digit; use a shorter ring name of lower-case letters, digits, '-' and '.'"
        )
    return RingLabels(name, SHARD_LABEL_PREFIX + suffix, DRAIN_LABEL_PREFIX + suffix)


def is_label_name(text: str) -> bool:
    """Whether `text` can be the name part of a label, or a non-empty label value."""
    return len(text) <= LABEL_MAX_LENGTH and _LABEL_NAME.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Whether `text` can be the whole name of a label, `prefix/name` or `name`.

    >>> is_label_key("app.kubernetes.io/name"), is_label_key("name"), is_label_key("a name"), is_label_key("/name")
    (True, True, False, False)
    """
    prefix, slash, name = text.rpartition("/")
    return is_label_name(name) and (not slash or is_dns_subdomain(prefix))


def is_label_value(text: str) -> bool:
    """Whether `text` can be the value of a label."""
    return not text or is_label_name(text)
