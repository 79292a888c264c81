"""What a read of all leases of a name shows that the cache does not have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest

from sharder.core.observed import observe
from sharder.takeover.facts import unknown_lease
from shardsdk.protocol.leases import Lease
from shardsdk.testing.virtual import VirtualClock
from tests.unit.sharder.placement.stage import RING, SHARDS, lease


def read(version: str = "7", *, uid: str = "u", namespace: str = SHARDS, renewed: float = 0.0) -> Lease:
    """The lease of shard three as it is there, renewed at that moment."""
    body: Any = lease(VirtualClock(renewed), "three")
    body["metadata"] |= {"resourceVersion": version, "uid": uid, "namespace": namespace}
    return msgspec.convert(body, Lease)


SEEN: Final = observe(None, read(), 0.0, ())


@pytest.mark.parametrize(
    ("found", "unknown"),
    [
        (read(), None),
        (read("8", renewed=2.0), None),  # a write on condition of version 7 is refused
        (read(renewed=2.0), f"what {SHARDS}/three says in that version"),
        (read(uid="another"), f"what {SHARDS}/three says in that version"),
        (read(namespace="elsewhere"), "elsewhere/three"),
    ],
)
def test_what_the_cache_does_not_know(found: Lease, unknown: str | None) -> None:
    snapshot: Any = SimpleNamespace(name=RING, leases={(SHARDS, "three"): SEEN})
    assert unknown_lease(snapshot, "three", SEEN, [read(), found]) == unknown


def test_a_shard_without_a_lease_has_none_that_could_say_something_else() -> None:
    snapshot: Any = SimpleNamespace(name=RING, leases={})
    assert unknown_lease(snapshot, "three", None, []) is None
    assert unknown_lease(snapshot, "three", None, [read()]) == f"{SHARDS}/three"
