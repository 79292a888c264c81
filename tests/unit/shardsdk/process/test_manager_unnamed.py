"""Shards that start while the names of namespaces do not tell what their ring by ranges covers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardsdk.process.process import ExitCode
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.protocol.ranges import EVERYWHERE
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.ranges_stage import LEFT_OUT, Stage
from tests.shard_rig import RING

BY_TEAM = {"matchLabels": {"team": "a"}}
#: As a merge patch.
BY_NAMES = {"matchLabels": None, "matchExpressions": LEFT_OUT}
WAITS = "The ring does not say by name which namespaces it covers"


def select(stage: Stage, selector: dict[str, Any] | None) -> None:
    stage.server.patch(CLUSTERRINGS, RING.ring, None, {"spec": {"namespaceSelector": selector}})


def say(stage: Stage, selector: dict[str, Any] | None) -> None:
    """What the ring's status tells of it."""
    says = {"namespaceSelector": selector}
    stage.server.patch(CLUSTERRINGS, RING.ring, None, {"status": says}, subresource="status")


@in_virtual_time
async def test_one_that_is_started_anew_covers_what_the_ring_covered_before_as_those_do_that_run(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a rollout would take one after the other away, until nobody is left."""
    stage = Stage(clock)
    for namespace in ("default", "kube-system"):
        stage.secret(namespace, "one")
    stage.start("a")
    await stage.assign({"a": EVERYWHERE})
    await stage.until(lambda: stage.reconciled)
    select(stage, BY_TEAM)
    assert await stage.stop("a") is ExitCode.OK
    stage.reconciled.clear()
    stage.start("a")
    await stage.until(lambda: stage.reconciled, seconds=10)
    await asyncio.sleep(120)
    assert {each[1:] for each in stage.reconciled} == {("default", "one")}
    [told] = [each for each in caplog.records if "this one covers those of before" in each.message]
    assert "looks at 'team' (In)" in told.__dict__["error"]
    select(stage, BY_NAMES)
    await asyncio.sleep(120)
    assert not stage.processes["a"].done(), "it covers the same by names"


@pytest.mark.parametrize(("own", "said"), [(BY_TEAM, None), (BY_TEAM, BY_TEAM), (None, BY_TEAM)])
@in_virtual_time
async def test_one_waits_where_nothing_was_in_force_before_and_says_what_to_mend(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, own: dict[str, Any] | None, said: dict[str, Any] | None
) -> None:
    """A selector by labels may be there to keep the ring off what others work on."""
    stage = Stage(clock)
    say(stage, said)
    select(stage, own)
    stage.start("a")
    await asyncio.sleep(300)
    assert not stage.processes["a"].done()
    assert stage.server.find(LEASES, "a", "shards") is None
    [told] = [each for each in caplog.records if WAITS in each.message]
    assert "use kubernetes.io/metadata.name with In or NotIn" in told.__dict__["why"]
    select(stage, BY_NAMES)
    await stage.until(lambda: stage.server.find(LEASES, "a", "shards") is not None, seconds=15)
