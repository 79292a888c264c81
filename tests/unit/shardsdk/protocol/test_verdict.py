from __future__ import annotations

import pytest

from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.verdict import Verdict, judge

RING = parse_ring_name("example")
OTHER = parse_ring_name("other")


@pytest.mark.parametrize(
    ("labels", "verdict"),
    [
        (None, Verdict.IGNORE),
        ({}, Verdict.IGNORE),
        ({"app": "x"}, Verdict.IGNORE),
        ({RING.shard: "a"}, Verdict.RECONCILE),
        ({RING.shard: "b"}, Verdict.IGNORE),
        ({RING.shard: ""}, Verdict.IGNORE),
        ({RING.shard: "a", RING.drain: "true"}, Verdict.ACKNOWLEDGE),
        ({RING.shard: "a", RING.drain: "false"}, Verdict.ACKNOWLEDGE),
        ({RING.shard: "a", RING.drain: ""}, Verdict.ACKNOWLEDGE),
        ({RING.shard: "b", RING.drain: "true"}, Verdict.IGNORE),
        ({RING.drain: "true"}, Verdict.IGNORE),
        ({OTHER.shard: "a"}, Verdict.IGNORE),
        ({RING.shard: "a", OTHER.drain: "true"}, Verdict.RECONCILE),
    ],
)
def test_a_shard_works_on_what_names_it_and_nothing_else(labels: dict[str, str] | None, verdict: Verdict) -> None:
    assert judge(labels, RING, "a") is verdict


def test_a_shard_without_a_name_owns_nothing() -> None:
    assert judge({RING.shard: ""}, RING, "") is Verdict.IGNORE
