"""A ring by ranges whose shards cannot tell by the names of namespaces what it covers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sharder.core.selectors import NAMESPACE_NAME_LABEL, LabelSelector, Operator, Requirement
from shardsdk.protocol.objects import CLUSTERRINGS, NAMESPACES
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING, SETTINGS, leading
from tests.unit.sharder.ranges.rig import Ring, ranged

BY_TEAM = {"matchLabels": {"team": "a"}}
BY_DEFAULT = replace(SETTINGS, default_scope=LabelSelector(match_labels=(("team", "a"),)))
FEW = tuple(f"n-{number}" for number in range(3))
OF_FEW = replace(
    SETTINGS, default_scope=LabelSelector(match_expressions=(Requirement(NAMESPACE_NAME_LABEL, Operator.IN, FEW),))
)


def edit(ring: Ring, **spec: Any) -> None:
    ring.stage.server.patch(CLUSTERRINGS, RING, None, {"spec": spec})


def set_up(ring: Ring) -> None:
    """Have it assign by ranges, over some namespaces of which few are of the team."""
    for number in range(20):
        labels = {"team": "ab"[number > 2]}
        ring.stage.create(NAMESPACES, {"metadata": {"name": f"n-{number}", "labels": labels}}, None)
    edit(ring, assignment="Ranges", hashBy="Namespace")


def covers(ring: Ring) -> Any:
    """What the ring's status tells shards."""
    return (ring.stage.server.get(CLUSTERRINGS, RING, None).get("status") or {}).get("namespaceSelector")


@in_virtual_time
async def test_an_edit_that_shards_cannot_follow_moves_nothing_and_is_told(clock: VirtualClock) -> None:
    """The API server refuses it, unless its definition is an older one."""
    async with ranged(clock, "a", "b") as ring:
        stage = ring.stage
        set_up(ring)
        async with leading(stage):
            await ring.until_spread("a", "b")
            await stage.until(lambda: stage.condition("Ready") == "True")
            writes, said = ring.writes(), covers(ring)
            edit(ring, namespaceSelector=BY_TEAM)
            await stage.until(lambda: "spec.namespaceSelector looks at 'team' (In)" in stage.message("Ready"))
            assert stage.condition("Ready") == "False"
            await stage.pass_time(120)
            assert (ring.writes(), covers(ring)) == (writes, said)
            edit(ring, namespaceSelector=None)
            await stage.until(lambda: stage.condition("Ready") == "True")
            await stage.pass_time(120)
            assert (ring.writes(), covers(ring)) == (writes, said)


@in_virtual_time
async def test_what_a_shard_has_that_crashes_after_such_an_edit_goes_to_others(clock: VirtualClock) -> None:
    """Also by a leader that has never seen the ring as it was before."""
    async with ranged(clock, "a", "b", "c") as ring:
        stage = ring.stage
        set_up(ring)
        async with leading(stage):
            await ring.until_spread("a", "b", "c")
            edit(ring, namespaceSelector=BY_TEAM)
            await stage.until(lambda: stage.condition("Ready") == "False")
            ring.shards["a"].crash()
            await ring.until_spread("b", "c")
        async with leading(stage):
            ring.shards["b"].crash()
            await ring.until_spread("c")
            assert stage.condition("Ready") == "False"


@in_virtual_time
async def test_beside_a_default_that_shards_cannot_follow_they_go_by_the_one_before(clock: VirtualClock) -> None:
    """The ring is as good as it was, so what a shard has that crashes is not left to nobody."""
    async with ranged(clock, "a", "b") as ring:
        stage = ring.stage
        set_up(ring)
        async with leading(stage, OF_FEW):
            await ring.until_spread("a", "b")
            await stage.until(lambda: stage.condition("Settled") == "True")
            await stage.pass_time(400)
        writes, said = ring.writes(), covers(ring)
        async with leading(stage, BY_DEFAULT):
            await stage.until(lambda: "webhook.config.namespaceSelector, looks at 'team'" in stage.message("Ready"))
            await stage.pass_time(400)
            assert (ring.writes(), covers(ring)) == (writes, said)
        async with leading(stage, OF_FEW):
            await stage.until(lambda: stage.condition("Ready") == "True")
            await stage.pass_time(400)
            assert (ring.writes(), covers(ring)) == (writes, said)
        async with leading(stage, BY_DEFAULT):
            ring.start("c")
            await ring.until_spread("a", "b", "c")
            assert covers(ring) == said
            edit(ring, namespaceSelector={})
            await stage.until(lambda: stage.condition("Ready") == "True")
            assert covers(ring) == {"matchExpressions": []}


@in_virtual_time
async def test_a_ring_of_which_no_default_has_been_told_tells_none_that_shards_cannot_follow(
    clock: VirtualClock,
) -> None:
    """Shards wait until one is told, before they seek a lease."""
    async with ranged(clock) as ring:
        set_up(ring)
        async with leading(ring.stage, BY_DEFAULT):
            await ring.stage.until(lambda: ring.stage.condition("Ready") == "False")
            await ring.stage.pass_time(10)
            assert covers(ring) is None


@in_virtual_time
async def test_what_an_older_leader_has_told_and_shards_cannot_follow_is_taken_back(clock: VirtualClock) -> None:
    """They would end as they start, where those of a ring that tells nothing wait."""
    async with ranged(clock, "a", "b") as ring:
        stage = ring.stage
        set_up(ring)
        status = {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}}
        stage.server.rearrange(CLUSTERRINGS, RING, None, {"status": status})
        async with leading(stage, BY_DEFAULT):
            await ring.until_spread("a", "b")
            await stage.until(lambda: stage.condition("Ready") == "False")
            assert covers(ring) is None
