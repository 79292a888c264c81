"""Names on the wire are those that Go shards and sharders speak: recorded vectors hold them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardsdk.errors import InvalidRingName
from shardsdk.protocol.labels import LABEL_MAX_LENGTH, is_label_name, parse_ring_name
from shardsdk.protocol.leases import parse_micro_time, render_micro_time

LABELS = json.loads(Path("tests/vectors/labels.json").read_text())["labels"]


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
