"""Names and leases on the wire are those that Go shards and sharders speak; recorded vectors hold them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardsdk.errors import InvalidRingName
from shardsdk.protocol.labels import (
    LABEL_MAX_LENGTH,
    LEASE_STATE_LABEL,
    SHARDER_HOLDER,
    is_label_name,
    parse_ring_name,
)
from shardsdk.protocol.leases import Lease, parse_micro_time, render_micro_time

VECTORS = Path("tests/vectors")
LABELS = json.loads((VECTORS / "labels.json").read_text())["labels"]
LEASES = json.loads((VECTORS / "leases.json").read_text())


@pytest.mark.parametrize("row", [row for row in LABELS if row["valid"]], ids=lambda row: row["ring"])
def test_object_labels_are_those_of_the_ecosystem(row: dict[str, Any]) -> None:
    labels = parse_ring_name(row["ring"])

    assert (labels.ring, labels.shard, labels.drain) == (row["ring"], row["shard_label"], row["drain_label"])


@pytest.mark.parametrize("name", [*(row["ring"] for row in LABELS if not row["valid"]), "", "x" * 64])
def test_ring_name_that_cannot_be_a_label_is_refused(name: str) -> None:
    with pytest.raises(InvalidRingName, match="use"):
        parse_ring_name(name)


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,80}[a-z0-9])?", fullmatch=True))
def test_labels_are_valid_or_the_name_is_refused(name: str) -> None:
    try:
        labels = parse_ring_name(name)
    except InvalidRingName:
        assert len(name) > LABEL_MAX_LENGTH or not name[41:42].isalnum()
        return
    for key in (labels.shard, labels.drain):
        prefix, _, suffix = key.partition("/")
        assert prefix.endswith("alpha.sharding.timebertt.dev")
        assert is_label_name(suffix)


def lease(recorded: str) -> Lease:
    return msgspec.convert({"metadata": {}, **LEASES[recorded]}, Lease)


def test_lease_of_a_living_go_shard_is_held_by_it() -> None:
    held = lease("held_by_shard")

    assert (held.held_by_shard, held.ring, held.holder) == (True, "example", "go-shard-1")
    assert held.metadata.label(LEASE_STATE_LABEL) == "ready"
    assert (held.instance, held.fenced) == (None, False)
    assert held.spec.lease_duration_seconds == 15


def test_lease_released_by_a_go_shard_has_no_holder() -> None:
    released = lease("released_by_shard")

    assert (released.held_by_shard, released.holder, released.spec.lease_duration_seconds) == (False, "", 1)


def test_lease_taken_over_by_a_go_sharder_has_our_holder() -> None:
    assert lease("taken_over_by_sharder").holder == SHARDER_HOLDER


@pytest.mark.parametrize("recorded", ["held_by_shard", "released_by_shard", "taken_over_by_sharder"])
def test_recorded_times_are_read_and_written_back_the_same(recorded: str) -> None:
    spec = lease(recorded).spec
    for text in (spec.acquire_time, spec.renew_time):
        moment = parse_micro_time(text)
        assert moment is not None
        assert render_micro_time(moment) == text


@given(
    st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
    | st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1)).map(  # noqa: DTZ001
        lambda moment: moment.replace(tzinfo=timezone(timedelta(hours=5)))
    )
)
def test_micro_time_has_six_digits_and_names_the_same_moment(moment: datetime) -> None:
    text = render_micro_time(moment)

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", text)
    assert parse_micro_time(text) == moment


@pytest.mark.parametrize("text", [None, "", "soon", "2026-11-21", "2026-11-21T13:21:19.069798"])
def test_malformed_time_is_none_or_taken_as_utc(text: str | None) -> None:
    moment = parse_micro_time(text)

    assert moment is None or moment.tzinfo is UTC
