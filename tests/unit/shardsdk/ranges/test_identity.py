"""Whose an object is where ranges of hashes are assigned: by what its shard holds this moment, and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from shardsdk.kube.selectors import Selector
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.namespaces import CoveredNamespaces
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.protocol.ranges import EVERYWHERE, NOWHERE, HashBy, HashRanges, point_of
from shardsdk.protocol.verdict import Verdict
from shardsdk.ranges.identity import RangeIdentity

RING = parse_ring_name("example")


@dataclass
class Holds:
    """What a shard holds."""

    working: HashRanges = NOWHERE
    ending: HashRanges = NOWHERE


def around(text: str) -> HashRanges:
    return HashRanges.of((point_of(text), point_of(text) + 1))


def thing(namespace: str = "blue", uid: str = "u-1") -> PartialObject:
    """One that wears another shard's label, which counts for nothing."""
    labels = {RING.shard: "another"}
    return PartialObject(ObjectMeta(name="it", namespace=namespace, uid=uid, labels=labels))


@pytest.mark.parametrize(("by", "key"), [(HashBy.NAMESPACE, "blue"), (HashBy.UID, "u-1")])
def test_it_reconciles_where_it_works_and_gives_back_where_it_ends(by: HashBy, key: str) -> None:
    identity, holds = RangeIdentity(RING, "one", by), Holds()
    assert identity.judge(thing()) is Verdict.IGNORE, "nothing is held yet"
    identity.held = holds
    assert identity.judge(thing()) is Verdict.IGNORE
    holds.working = around(key)
    assert identity.judge(thing()) is Verdict.RECONCILE
    holds.working, holds.ending = NOWHERE, around(key)
    assert identity.judge(thing()) is Verdict.ACKNOWLEDGE
    holds.ending = EVERYWHERE - around(key)
    holds.working = NOWHERE
    assert identity.judge(thing()) is Verdict.IGNORE


def test_namespaces_that_the_ring_does_not_cover_are_nobodys() -> None:
    identity = RangeIdentity(RING, "one", HashBy.NAMESPACE, CoveredNamespaces(only=frozenset({"blue"})))
    identity.held = Holds(working=EVERYWHERE)
    assert identity.judge(thing("blue")) is Verdict.RECONCILE
    assert identity.judge(thing("green")) is Verdict.IGNORE
    identity.held = Holds(ending=EVERYWHERE)
    assert identity.judge(thing("green")) is Verdict.IGNORE, "nothing of it is there to be given back"
    everywhere = RangeIdentity(RING, "one", HashBy.NAMESPACE)
    everywhere.held = Holds(working=EVERYWHERE)
    assert everywhere.judge(thing("kube-system")) is Verdict.RECONCILE


def test_caches_ask_for_what_their_owner_selects_whatever_its_labels_are() -> None:
    identity = RangeIdentity(RING, "one", HashBy.NAMESPACE)
    assert identity.labels == {}
    assert identity.selector() == Selector()
    assert identity.selector(Selector("app=mine")) == Selector("app=mine")
    assert identity.unassigned(Selector("app=mine")) is None
