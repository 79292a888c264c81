"""Whatever leases and rings hold: an object that the code can work with, or the one error that its reader expects."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sharder.cache.ringobject import RingObject
from sharder.core.membership import Membership, build
from sharder.core.observed import observe, says, vanish
from sharder.core.ringspec import InvalidRing, RingSpec, parse_ring, placed_resources, resolve
from sharder.core.shards import Proof, classify, facts_of
from sharder.kubectl.leader import read_leading
from sharder.kubectl.shards import read_shard_status
from shardsdk.errors import ShardingError
from shardsdk.kube.answers import Target
from shardsdk.kube.decoding import codec_of
from shardsdk.protocol.labels import FENCED_ANNOTATION, INSTANCE_ANNOTATION, LEASE_RING_LABEL, LEASE_STATE_LABEL
from shardsdk.protocol.leases import Lease, parse_micro_time
from tests.fuzz.hostile_values import examples, mutated, texts, values

NOW = datetime(2026, 1, 1, tzinfo=UTC)
times = (
    st.sampled_from(["2026-01-01T00:00:00.000000Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]) | texts
)
leases = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.sampled_from(["shard-0", "a"]) | texts, "namespace": texts, "resourceVersion": texts},
            optional={
                "labels": st.dictionaries(st.sampled_from([LEASE_RING_LABEL, LEASE_STATE_LABEL]), texts),
                "annotations": st.dictionaries(st.sampled_from([INSTANCE_ANNOTATION, FENCED_ANNOTATION]), times),
            },
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "holderIdentity": st.sampled_from(["shard-0", "a", "shardlease-controller"]) | texts,
                "leaseDurationSeconds": st.integers(-(2**31), 2**31 - 1),
                "acquireTime": times,
                "renewTime": times,
                "leaseTransitions": st.integers(-(2**31), 2**31 - 1),
            },
        ),
    }
)
resources = st.fixed_dictionaries(
    {"resource": st.sampled_from(["secrets", "configmaps"]) | texts}, optional={"group": texts}
)
selectors = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(texts, texts, max_size=2),
        "matchExpressions": st.lists(
            st.fixed_dictionaries(
                {"key": texts, "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"])},
                optional={"values": st.lists(texts, max_size=2)},
            ),
            max_size=2,
        ),
    },
)
rings = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.sampled_from(["example", "a" * 63]) | texts}, optional={"uid": texts}
        ),
        "spec": st.fixed_dictionaries(
            {"resources": st.lists(st.fixed_dictionaries({"resource": st.just("secrets")}) | resources, max_size=3)},
            optional={"namespaceSelector": selectors, "watchUnassignedControlled": st.booleans()},
        ),
    },
    optional={"status": st.fixed_dictionaries({"placedResources": st.lists(resources | values, max_size=3)})},
)


def decoded(model: type[Any], raw: Any) -> Any:
    """As a client decodes an answer; `None` where it refuses it with its own error."""
    try:
        return codec_of(model).decode(Target("get", "leases", "", ""), json.dumps(raw).encode())
    except ShardingError:
        return None


def parsed(ring: RingObject) -> RingSpec | InvalidRing:
    try:
        return parse_ring(ring.as_dict())
    except InvalidRing as error:
        return error


@given(mutated(leases), mutated(leases))
@examples(300)
def test_any_lease_is_judged_or_refused(first: Any, second: Any) -> None:
    seen = [lease for raw in (first, second) if (lease := decoded(Lease, raw)) is not None]
    known = None
    for at, lease in enumerate(seen):
        assert lease.duration_seconds > 0
        assert lease.instance is None or isinstance(lease.instance, str)
        says(lease)
        state = classify(facts_of(lease, float(at)), Proof(0.0, 5.0))
        assert state.look_again_at is None or math.isfinite(state.look_again_at)
        known = observe(known, lease, float(at), [known] if known is not None else [])
        assert known.held.seconds >= 0
        vanish(known, lease, float(at))
        status = read_shard_status(lease, NOW)
        assert status.renewed_seconds is None or status.renewed_seconds >= 0
        read_leading(lease, "here", NOW)
    membership = build(seen, {lease.metadata.name for lease in seen})
    assert isinstance(membership, Membership)
    assert membership.ready <= membership.available


@given(times | st.none())
@examples(200)
def test_any_time_is_a_moment_or_none(text: str | None) -> None:
    moment = parse_micro_time(text)
    assert moment is None or moment.tzinfo is not None
    if moment is not None:
        assert isinstance((NOW - moment).total_seconds(), float)


@given(mutated(rings))
@examples(300)
def test_any_ring_is_parsed_or_refused_with_its_problems(raw: Any) -> None:
    made = decoded(RingObject, raw)
    if made is None:
        return
    for resource, controlled in placed_resources(made.status_dict):
        assert isinstance(str(resource), str)
        assert isinstance(controlled, bool)
    read = parsed(made)
    if isinstance(read, InvalidRing):
        assert read.problems
        # Printed into conditions and Events, which the API server takes up to a length.
        assert len(str(read)) < 32_768
        return
    spec = read
    resolved, missing = resolve(spec, {})
    assert resolved.mains == ()
    assert set(missing) == set(spec.named)
    assert isinstance(resolved.in_scope("default", {}), bool)
