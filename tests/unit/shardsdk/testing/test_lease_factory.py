"""The leases that tests are given are those that the sharder and shards tell apart."""

from __future__ import annotations

import pytest

from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.testing import LeaseStage, lease_body, make_lease


@pytest.mark.parametrize(
    ("stage", "holder", "held"),
    [
        (LeaseStage.HELD, "shard-1", True),
        (LeaseStage.RELEASED, "", False),
        (LeaseStage.TAKEN_OVER, SHARDER_HOLDER, False),
    ],
)
def test_each_stage_reads_as_what_it_is(stage: LeaseStage, holder: str, held: bool) -> None:
    lease = make_lease("shard-1", "example", stage)
    assert (lease.holder, lease.held_by_shard, lease.ring) == (holder, held, "example")


def test_what_is_not_given_is_not_there() -> None:
    assert "annotations" not in lease_body("shard-1", "example")["metadata"]
    lease = make_lease("shard-1", "example", instance="uid-1", fenced=True)
    assert (lease.instance, lease.fenced) == ("uid-1", True)


def test_times_have_six_digits() -> None:
    assert lease_body("shard-1", "example")["spec"]["renewTime"] == "2030-01-01T00:00:00.000000Z"
