"""Leases as shards, sharders and strangers leave them, for tests of whoever reads them.

>>> make_lease("shard-1", "example").holder
'shard-1'
>>> make_lease("shard-1", "example", LeaseStage.RELEASED).held_by_shard
False
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import Any, assert_never

import msgspec

from shardsdk.protocol.labels import FENCED_ANNOTATION, INSTANCE_ANNOTATION, LEASE_RING_LABEL, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease, render_instance, render_micro_time
from shardsdk.testing.virtual import EPOCH


class LeaseStage(Enum):
    """Who holds the lease."""

    HELD = "its shard, which is alive"
    RELEASED = "nobody: the shard has stopped in order"
    TAKEN_OVER = "the sharder, while it moves the shard's objects"


def lease_body(
    name: str,
    ring: str,
    stage: LeaseStage = LeaseStage.HELD,
    *,
    namespace: str = "default",
    renewed: datetime = EPOCH,
    duration_seconds: int = 15,
    transitions: int = 0,
    instance: str | None = None,
    fenced: bool = False,
) -> dict[str, Any]:
    """The lease of the shard `name` of `ring`, last renewed at `renewed`, as it is created."""
    match stage:
        case LeaseStage.HELD:
            holder, seconds = name, duration_seconds
        case LeaseStage.RELEASED:
            holder, seconds = "", 1
        case LeaseStage.TAKEN_OVER:
            holder, seconds, transitions = SHARDER_HOLDER, 2 * duration_seconds, transitions + 1
        case _:
            assert_never(stage)
    renew_time = render_micro_time(renewed)
    annotations = {
        INSTANCE_ANNOTATION: None if instance is None else render_instance(instance, renew_time),
        FENCED_ANNOTATION: renew_time if fenced else None,
    }
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": {LEASE_RING_LABEL: ring}}
    if given := {key: value for key, value in annotations.items() if value}:
        metadata["annotations"] = given
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "acquireTime": render_micro_time(renewed - timedelta(seconds=duration_seconds)),
        "renewTime": renew_time,
        "leaseTransitions": transitions,
    }
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def make_lease(name: str, ring: str, stage: LeaseStage = LeaseStage.HELD, **options: Any) -> Lease:
    """The same as peers decode it; `options` are those of `lease_body`."""
    return msgspec.convert(lease_body(name, ring, stage, **options), Lease)
