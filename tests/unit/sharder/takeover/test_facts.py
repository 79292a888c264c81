"""Which renewal needs no look of its own, because another one is due in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharder.core.shards import Standing, State
from sharder.takeover.facts import only_renewed
from sharder.takeover.fences import ShardHold
from sharder.takeover.lease_client import Record
from shardsdk.protocol.labels import LEASE_STATE_LABEL
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.testing.virtual import VirtualClock

READY = Standing(State.READY, 115.0)
#: A lease that was looked at before, and comes up again when its previous renewal would have run out.
LOOKED_AT = Record(ShardHold("lease of shard one", VirtualClock(100.0)), looks_at=110.0)
RECENT = 95.0


def lease(state: str | None = "ready") -> Lease:
    labels = {LEASE_STATE_LABEL: state} if state else {}
    return Lease(ObjectMeta(name="one", namespace="shards", labels=labels), LeaseSpec(holder_identity="one"))


def test_a_renewal_that_changes_nothing_is_left_to_the_look_that_is_due() -> None:
    assert only_renewed(lease(), READY, LOOKED_AT, RECENT)


@pytest.mark.parametrize("state", [None, "dead"])
def test_one_whose_state_is_not_shown_is_not(state: str | None) -> None:
    assert not only_renewed(lease(state), READY, LOOKED_AT, RECENT)


@pytest.mark.parametrize(
    "record",
    [
        replace(LOOKED_AT, looks_at=float("inf")),
        replace(LOOKED_AT, looks_at=116.0),
        replace(LOOKED_AT, held=True),
        replace(LOOKED_AT, wrote_at=96.0),
    ],
    ids=["no look is due", "the look comes too late", "the leader holds the lease", "the cache may lag"],
)
def test_one_of_which_something_is_to_be_decided_is_not(record: Record) -> None:
    assert not only_renewed(lease(), READY, record, RECENT)


@pytest.mark.parametrize("state", [each for each in State if each is not State.READY])
def test_one_of_a_shard_that_is_not_ready_is_not(state: State) -> None:
    assert not only_renewed(lease(state.value), Standing(state, 115.0), LOOKED_AT, RECENT)
