"""The guard: may this shard work on this object, and how does it give one away?

By the labels on the object alone; they are the whole truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from shardsdk.protocol.labels import RingLabels


class Verdict(Enum):
    """What a shard does with an object."""

    RECONCILE = "the object is this shard's"
    ACKNOWLEDGE = "the object is this shard's, and the sharder asks for it: stop, then remove both labels"
    IGNORE = "the object is another shard's, or nobody's"


def judge(labels: Mapping[str, str] | None, ring: RingLabels, shard: str) -> Verdict:
    """Judge an object of `ring` by its labels, as the shard called `shard`.

    `labels` None means that the object has none.  Of the drain label only its
    presence counts, and only the shard that the object names may acknowledge it.
    """
    if not labels or not shard or labels.get(ring.shard) != shard:
        return Verdict.IGNORE
    return Verdict.ACKNOWLEDGE if ring.drain in labels else Verdict.RECONCILE


def acknowledgement(ring: RingLabels, resource_version: str) -> dict[str, Any]:
    """The merge patch that gives an object away as it was seen: both labels at once; a newer object is a conflict."""
    labels = {ring.shard: None, ring.drain: None}
    return {"metadata": {"resourceVersion": resource_version, "labels": labels}}
