"""What a read of all leases of a name shows that the cache does not have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest

from sharder.core.observed import observe
from sharder.takeover.facts import name_taken, unknown_lease
from shardsdk.protocol.labels import LEASE_CONTROLLERRING_LABEL, LEASE_RING_LABEL
from shardsdk.protocol.leases import Lease
from shardsdk.testing.virtual import VirtualClock
from tests.unit.sharder.placement.stage import RING, SHARDS, lease


def read(version: str = "7", *, uid: str = "u", namespace: str = SHARDS, renewed: float = 0.0) -> Lease:
    """The lease of shard three as it is there, renewed at that moment."""
    body: Any = lease(VirtualClock(renewed), "three")
    body["metadata"] |= {"resourceVersion": version, "uid": uid, "namespace": namespace}
    return msgspec.convert(body, Lease)


def of_ring(holder: str, labels: dict[str, str], namespace: str = SHARDS) -> Lease:
    """The lease of shard three, with these labels."""
    body: Any = lease(VirtualClock(), "three", holder=holder)
    body["metadata"] |= {"namespace": namespace, "labels": labels}
    return msgspec.convert(body, Lease)


OTHER_RING: Final = {LEASE_RING_LABEL: "other"}
SEEN: Final = observe(None, read(), 0.0, ())


@pytest.mark.parametrize(
    ("found", "unknown"),
    [
        (read(), None),
        (read("8", renewed=2.0), None),  # a write on condition of version 7 is refused
        (read(renewed=2.0), f"what {SHARDS}/three says in that version"),
        (read(uid="another"), f"what {SHARDS}/three says in that version"),
        (read(namespace="elsewhere"), "elsewhere/three"),
        (of_ring("three", OTHER_RING, "elsewhere"), None),  # it is no shard's of this ring
    ],
)
def test_what_the_cache_does_not_know(found: Lease, unknown: str | None) -> None:
    snapshot: Any = SimpleNamespace(name=RING, leases={(SHARDS, "three"): SEEN})
    assert unknown_lease(snapshot, "three", SEEN, [read(), found]) == unknown


def test_a_shard_without_a_lease_has_none_that_could_say_something_else() -> None:
    snapshot: Any = SimpleNamespace(name=RING, leases={})
    assert unknown_lease(snapshot, "three", None, []) is None
    assert unknown_lease(snapshot, "three", None, [read()]) == f"{SHARDS}/three"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], ""),
        ([read()], ""),
        ([of_ring("three", OTHER_RING)], "stop or rename shard three of ring other, then delete the Lease"),
        ([of_ring("three", {LEASE_CONTROLLERRING_LABEL: "new"})], "stop or rename shard three of ring new"),
        ([of_ring("", OTHER_RING)], f"delete that Lease, or give it the label {LEASE_RING_LABEL}={RING}"),
        ([of_ring("three", {})], "delete that Lease, or give it the label"),
        ([of_ring("three", OTHER_RING, "elsewhere")], ""),  # no shard of this ring is there
    ],
)
def test_whose_the_lease_is_that_cannot_be_acquired(found: list[Lease], words: str) -> None:
    """The lease of another shard says in which namespace the ring's shards are."""
    snapshot: Any = SimpleNamespace(name=RING, leases={(SHARDS, "two"): SEEN})
    taken = name_taken(snapshot, "three", found)
    assert words in taken if words else not taken


def test_another_rings_lease_of_the_name_elsewhere_is_not_in_the_way() -> None:
    snapshot: Any = SimpleNamespace(name=RING, leases={(SHARDS, "three"): SEEN, ("elsewhere", "two"): SEEN})
    assert not name_taken(snapshot, "three", [read(), of_ring("three", OTHER_RING, "elsewhere")])
