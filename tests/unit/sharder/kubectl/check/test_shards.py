"""What `check` says of a ring's shards."""

from __future__ import annotations

import pytest

from sharder.kubectl.check.findings import Level
from shardsdk.protocol.leases import Lease
from tests.unit.sharder.kubectl.check.test_rings import amiss, overview
from tests.unit.sharder.kubectl.rings import lease


@pytest.mark.parametrize("others", [(lease("two"),), ()])
def test_a_lease_that_is_renewed_under_another_name_is_told_with_what_the_holder_has_to_be(
    others: tuple[Lease, ...],
) -> None:
    found = amiss(overview=overview(lease("one", holder="one_0b1f5f0e"), *others))
    assert (found[0].level, found[0].topic) == (Level.PROBLEM, "shards")
    assert found[0].message.startswith("the Lease default/one is renewed by 'one_0b1f5f0e', so that it is no shard's")
    assert found[0].remedy.startswith("have whoever renews it say one as holderIdentity")
