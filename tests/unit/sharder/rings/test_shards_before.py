"""Shards that nobody takes over are said to be gone also by the next leader, until that has to know it itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sharder.core.observed import ObservedLease
from sharder.core.summary import Summary
from sharder.rings.overdue import ATTEMPTS_SECONDS, ShardsBefore
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

SAID = ("NotTakenOver", "0 of 1 shards are available; the lease of one cannot be acquired")
#: What a ring at rest waits for.
NOTHING = Summary(settled=True, at_rest=True)
LEASE = Lease(ObjectMeta(name="one"), LeaseSpec(holder_identity="one", lease_duration_seconds=40))
LEASES = (ObservedLease(LEASE, 0.0),)


def status(kind: str = "ShardsAvailable", reason: str = SAID[0]) -> Mapping[str, Any]:
    return {"conditions": [{"type": kind, "status": "False", "reason": reason, "message": SAID[1]}]}


@in_virtual_time
async def test_it_is_said_until_a_lease_without_a_fence_would_have_run_out_and_failed_to_be_acquired(
    clock: VirtualClock,
) -> None:
    before = ShardsBefore(status(), clock)
    told = replace(NOTHING, shards_before=SAID, at_rest=False)
    assert before.apply(NOTHING, LEASES) == told
    await clock.sleep(2 * 40 + ATTEMPTS_SECONDS - 0.1)
    assert before.apply(NOTHING, LEASES) == told
    await clock.sleep(0.2)
    assert before.apply(NOTHING, LEASES) == NOTHING
    assert before.apply(NOTHING, ()) == NOTHING, "nor later, whatever leases there are"


@pytest.mark.parametrize(
    "found", [replace(NOTHING, not_acquired=(("one", "no"),)), replace(NOTHING, abandoned=(("one", "default/one"),))]
)
@in_virtual_time
async def test_what_this_leader_has_found_goes_before_what_another_has_said(
    clock: VirtualClock, found: Summary
) -> None:
    assert ShardsBefore(status(), clock).apply(found, LEASES) == found


@pytest.mark.parametrize(
    "other", [{}, status(reason="NoShard"), status(kind="Ready"), status(kind="DrainsAcknowledged", reason="Overdue")]
)
@in_virtual_time
async def test_nothing_else_that_was_said_is_said_again(clock: VirtualClock, other: Mapping[str, Any]) -> None:
    assert ShardsBefore(other, clock).apply(NOTHING, LEASES) == NOTHING
