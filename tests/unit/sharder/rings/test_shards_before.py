"""Shards that nobody takes over are said to be gone also by the next leader, until that has to know it itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from sharder.core.conditions import ConditionReason
from sharder.core.observed import ObservedLease, observe
from sharder.core.summary import Summary
from sharder.rings.overdue import ATTEMPTS_SECONDS, ShardsBefore
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

SAID = (ConditionReason.NOT_TAKEN_OVER, "0 of 1 shards are available; the lease of one cannot be acquired")
#: What a ring at rest waits for.
NOTHING = Summary(settled=True, at_rest=True)
LEASE = Lease(ObjectMeta(name="one"), LeaseSpec(holder_identity="one", lease_duration_seconds=40))
LEASES = (ObservedLease(LEASE, 0.0),)
OTHER = Lease(ObjectMeta(name="other"), LeaseSpec(holder_identity="other", lease_duration_seconds=15))


def renewed(lease: Lease) -> Lease:
    return replace(lease, spec=replace(lease.spec, renew_time="later"))


def status(kind: str = "ShardsAvailable", reason: str = str(SAID[0])) -> Mapping[str, Any]:
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


@in_virtual_time
async def test_that_leases_ran_out_is_withdrawn_once_each_that_a_shard_holds_was_seen_renewed_or_acquired(
    clock: VirtualClock,
) -> None:
    before = ShardsBefore(status(reason="NobodyReady"), clock)
    told = replace(NOTHING, shards_before=(ConditionReason.NOBODY_READY, SAID[1]), at_rest=False)
    await clock.sleep(1.0)
    listed = [observe(None, lease, clock.monotonic(), ()) for lease in (LEASE, OTHER)]
    assert before.apply(NOTHING, listed) == told, "a list says nothing of when a lease was renewed"
    await clock.sleep(2.0)
    one = observe(listed[0], renewed(LEASE), clock.monotonic(), ())
    assert before.apply(NOTHING, [one, listed[1]]) == told
    other = observe(None, replace(OTHER, spec=LeaseSpec(lease_duration_seconds=1)), 0.0, ())
    assert before.apply(NOTHING, [one, observe(other, OTHER, clock.monotonic(), ())]) == NOTHING
    assert before.apply(NOTHING, listed) == NOTHING, "nor is it said again"


@in_virtual_time
async def test_that_leases_ran_out_is_withdrawn_once_none_of_them_is_a_shards(clock: VirtualClock) -> None:
    before = ShardsBefore(status(reason="NobodyReady"), clock)
    given_back = replace(LEASE, spec=LeaseSpec(lease_duration_seconds=1))
    assert before.apply(NOTHING, [observe(None, given_back, clock.monotonic(), ())]) == NOTHING


@in_virtual_time
async def test_a_renewal_from_before_this_leader_began_proves_nothing(clock: VirtualClock) -> None:
    seen = observe(observe(None, LEASE, 0.0, ()), renewed(LEASE), clock.monotonic(), ())
    await clock.sleep(1.0)
    before = ShardsBefore(status(reason="NobodyReady"), clock)
    assert before.apply(NOTHING, [seen]).shards_before is not None


@in_virtual_time
async def test_that_a_lease_could_not_be_acquired_is_withdrawn_once_nothing_waits_for_that_any_more(
    clock: VirtualClock,
) -> None:
    """It may be another than those that are renewed: nobody's, or one that is not there."""
    before, waits = ShardsBefore(status(), clock), replace(NOTHING, settled=False)
    await clock.sleep(1.0)
    listed = observe(None, LEASE, clock.monotonic(), ())
    assert before.apply(NOTHING, [listed]).shards_before is not None, "it may have run out"
    await clock.sleep(1.0)
    seen = observe(listed, renewed(LEASE), clock.monotonic(), ())
    assert before.apply(waits, [seen]).shards_before is not None
    assert before.apply(NOTHING, [seen]) == NOTHING
    assert before.apply(waits, [listed]) == waits, "nor is it said again"


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
