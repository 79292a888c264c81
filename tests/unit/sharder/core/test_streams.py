"""How many watches a leader holds, as its rings want them."""

from __future__ import annotations

import pytest

from sharder.core.ringspec import ResolvedMain, ResolvedRing, parse_ring
from sharder.core.streams import OWN_STREAMS, RANGES_STREAMS, count_streams, is_near, render_watch_count
from shardsdk.protocol.objects import Resource

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
PODS = Resource("", "v1", "pods", "Pod")


def ring(*mains: ResolvedMain, **spec: object) -> ResolvedRing:
    return ResolvedRing(parse_ring({"metadata": {"name": "example"}, "spec": spec}), mains)


def test_each_resource_of_each_ring_takes_watches() -> None:
    family = ResolvedMain(SECRETS, (CONFIGMAPS, PODS))
    assert count_streams([]) == 4
    assert count_streams([ring(ResolvedMain(SECRETS))]) == 4 + 3
    assert count_streams([ring(family), ring(family, ResolvedMain(PODS))]) == 4 + 7 + 10
    assert count_streams([ring(family, watchUnassignedControlled=False)]) == 4 + 5


@pytest.mark.parametrize(("streams", "near", "over"), [(79, False, False), (80, True, False), (101, True, True)])
def test_people_are_told_before_it_is_too_late(streams: int, near: bool, over: bool) -> None:
    assert is_near(streams, 100) is near
    assert (render_watch_count(streams, 100) is not None) is over


def test_of_a_ring_by_ranges_its_assignment_alone_is_watched() -> None:
    mains = (ResolvedMain(SECRETS, (CONFIGMAPS,)), ResolvedMain(PODS))
    assert count_streams([ring(*mains, assignment="Ranges", hashBy="Namespace")]) == OWN_STREAMS + RANGES_STREAMS
