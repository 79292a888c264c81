"""When a ring of a run counts as settled, by either way of assigning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.history import ASSIGNMENTS, CHILDREN, OWNERS, Version
from tests.chaos.ring import RING, RINGS, Current, settled
from tests.integration.ranged_shard import point_of

FIRST, SECOND = sorted(RINGS["Ranges"].namespaces[:2], key=point_of)
CUT = point_of(SECOND)


def ranged(*shards: str | None, named: tuple[str | None, ...] = ("one", "two"), value: str = "1") -> Current:
    """An object with a child in each of two namespaces, on these shards; each is to be on the one that is named."""
    versions = [Version((0, 1), ASSIGNMENTS, RING, 0.0, named=((0, named[0]), (CUT, named[1])))]
    for namespace, shard in zip((FIRST, SECOND), shards, strict=True):
        owner = Version((0, 2), OWNERS, namespace, 0.0, uid=namespace, value="1", namespace=namespace, shard=shard)
        versions += [owner, replace(owner, resource=CHILDREN, owner=owner.uid, value=value)]
    return {(each.resource, each.name): each for each in versions}


@pytest.mark.parametrize(
    ("there", "living", "placed"),
    [
        (ranged("one", "two"), ("one", "two"), True),
        (ranged("one", "one"), ("one", "two"), False),
        (ranged("one", "one", named=("one", "one")), ("one", "two"), False),
        (ranged("one", "one", named=("one", "one")), ("one",), True),
        (ranged("one", None), ("one", "two"), False),
        (ranged("one", None, named=("one", None)), ("one",), False),
        ({}, (), False),
    ],
)
def test_by_ranges_all_is_placed_once_each_holder_is_named_and_each_shard_has_some(
    there: Current, living: tuple[str, ...], placed: bool
) -> None:
    assert RINGS["Ranges"].placed(there, living) is placed


def test_it_is_settled_once_each_child_is_as_its_owner_wants_it() -> None:
    living = ("one", "two")
    assert settled(RINGS["Ranges"], ranged("one", "two"), living, 1)
    assert not settled(RINGS["Ranges"], ranged("one", "two", value="0"), living, 1)
    assert not settled(RINGS["Ranges"], ranged("one", "two"), living, 2)
    assert not settled(RINGS["Ranges"], ranged("one", "one"), living, 1)
