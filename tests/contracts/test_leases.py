"""Leases that Go shards and a Go sharder wrote, as recorded, mean to us what they meant to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sharder.core.membership import build
from sharder.core.shards import LeaseFacts, Proof, State, classify, facts_of
from shardsdk.protocol.labels import (
    ENDED_ANNOTATION,
    FENCED_ANNOTATION,
    INSTANCE_ANNOTATION,
    LEAVING_ANNOTATION,
    MAIN_RESOURCES_ANNOTATION,
    SHARDER_HOLDER,
)
from shardsdk.protocol.leases import Lease, parse_micro_time, render_micro_time
from shardsdk.protocol.ranges import HELD_RANGES_ANNOTATION, NOWHERE

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "leases.json").read_text())


def recorded(name: str) -> Lease:
    metadata = VECTORS["held_by_shard"]["metadata"]
    return msgspec.convert({"metadata": metadata, **VECTORS[name]}, Lease)


def state(facts: LeaseFacts, seconds: float) -> State:
    return classify(facts, Proof(since=0, until=seconds)).state


def test_a_lease_held_by_its_shard_makes_the_shard_available() -> None:
    lease = recorded("held_by_shard")
    facts = facts_of(lease, observed_at=0)
    assert lease.ring == "example"
    assert facts.held_by_shard
    assert (facts.duration_seconds, facts.fenced, facts.released) == (15, False, False)
    assert [state(facts, at) for at in (14.9, 15, 29.9, 30)] == [
        State.READY,
        State.EXPIRED,
        State.EXPIRED,
        State.UNCERTAIN,
    ]
    assert build([lease], {"go-shard-1"}).ready == {"go-shard-1"}


def test_a_released_lease_is_dead_at_once_and_known_as_released() -> None:
    facts = facts_of(recorded("released_by_shard"), observed_at=0)
    assert facts.released
    assert [state(facts, at) for at in (0, 60.9, 61)] == [State.DEAD, State.DEAD, State.ORPHANED]
    assert build([recorded("released_by_shard")], set()).available == frozenset()


def test_a_lease_taken_over_by_a_go_sharder_is_dead() -> None:
    facts = facts_of(recorded("taken_over_by_sharder"), observed_at=0)
    assert facts.holder == SHARDER_HOLDER
    assert not facts.released
    assert [state(facts, at) for at in (0, 89.9, 90)] == [State.DEAD, State.DEAD, State.ORPHANED]


def test_annotations_speak_for_the_write_that_they_came_with() -> None:
    lease, left = recorded("held_by_fenced_shard"), recorded("left_in_restart_grace")
    leaving = recorded("held_by_leaving_shard")
    assert (lease.instance, lease.fenced) == ("0b1f5f0e-6c0f-4e7b-9d0d-3f5c2a1e8b77", True)
    assert (left.instance, left.fenced) == ("", True)
    assert [each.leaving for each in (lease, leaving, left)] == [False, True, False]
    assert [each.left for each in (lease, leaving, left)] == [False, False, True]
    assert state(facts_of(lease, observed_at=0), 15) is State.UNCERTAIN


def test_an_annotation_may_write_the_moment_of_its_write_with_another_offset_than_the_api_server_stores() -> None:
    said = "2026-11-21T15:23:07.512340+02:00"
    annotations = {
        INSTANCE_ANNOTATION: f"uid@{said}",
        FENCED_ANNOTATION: said,
        LEAVING_ANNOTATION: said,
        ENDED_ANNOTATION: f"failed@{said}",
        MAIN_RESOURCES_ANNOTATION: f"secrets@{said}",
        HELD_RANGES_ANNOTATION: f"@{said}",
    }

    def stored(renew_time: str | None) -> Lease:
        return msgspec.convert({"metadata": {"annotations": annotations}, "spec": {"renewTime": renew_time}}, Lease)

    lease = stored("2026-11-21T13:23:07.512340Z")
    assert (lease.instance, lease.fenced, lease.leaving, lease.ended_in_failure) == ("uid", True, True, True)
    assert (lease.held_ranges, len(lease.main_resources)) == (NOWHERE, 1)
    for other in (stored("2026-11-21T13:23:07.512341Z"), stored(None), stored("yesterday")):
        assert (other.instance, other.fenced, other.leaving, other.ended_in_failure) == (None, False, False, False)
        assert (other.held_ranges, len(other.main_resources)) == (None, 0)


@pytest.mark.parametrize("name", ["held_by_fenced_shard", "held_by_leaving_shard", "left_in_restart_grace"])
def test_annotations_that_a_go_shard_has_kept_say_nothing(name: str) -> None:
    lease = msgspec.convert({"metadata": VECTORS[name]["metadata"], "spec": VECTORS["held_by_shard"]["spec"]}, Lease)
    assert lease.metadata.annotations
    assert (lease.instance, lease.fenced, lease.leaving, lease.left) == (None, False, False, False)


def test_annotations_without_the_time_of_their_write_say_nothing() -> None:
    annotations = {INSTANCE_ANNOTATION: "uid", FENCED_ANNOTATION: "true"}
    lease = msgspec.convert({"metadata": {"annotations": annotations}, "spec": {"holderIdentity": "a"}}, Lease)
    assert (lease.instance, lease.fenced) == (None, False)


def test_recorded_times_are_written_back_as_they_were() -> None:
    for name in ("held_by_shard", "released_by_shard", "taken_over_by_sharder"):
        for text in (recorded(name).spec.acquire_time, recorded(name).spec.renew_time):
            moment = parse_micro_time(text)
            assert moment is not None
            assert render_micro_time(moment) == text
