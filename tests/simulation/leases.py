"""What the lease of a shard says, as the checkers remember it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from shardsdk.protocol.labels import FENCED_ANNOTATION
from tests.simulation.storage import Version


@dataclass(slots=True)
class Held:
    """What a lease says since when, and who wrote that; of one that a user tore, also who had it until then.

    `number` is the version that says so; `again_at`: since when one says so that a restore of the store brought back,
    while `number` and `at` are those of a later renewal that it lost.
    """

    holder: str
    duration: float
    fenced: bool
    at: float
    author: str
    torn_from: str = ""
    number: int = 0
    again_at: float | None = None

    @classmethod
    def read(cls, lease: Version, at: float, author: str) -> Self:
        """What `author` made a lease say at this moment."""
        spec: dict[str, Any] = lease.doc.get("spec") or {}
        annotations = lease.doc["metadata"].get("annotations") or {}
        fenced = FENCED_ANNOTATION in annotations and annotations[FENCED_ANNOTATION] == spec.get("renewTime")
        holder, seconds = spec.get("holderIdentity") or "", float(spec.get("leaseDurationSeconds") or 15)
        return cls(holder, seconds, fenced, at, author, number=int(lease.doc["metadata"]["resourceVersion"]))
