"""What is written by hand, or wrongly, is told apart from what says nothing."""

from __future__ import annotations

import msgspec
import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    HELD_RANGES_ANNOTATION,
    NOWHERE,
    SPACE,
    AssignedRange,
    HashBy,
    HashRanges,
    Named,
    RingAssignmentSpec,
    held_ranges,
    parse_assignment,
    render_assignment,
    render_bound,
)

FIRST, MIDDLE = render_bound(0), render_bound(1 << 63)


def test_a_selector_has_the_form_that_the_api_server_reads() -> None:
    ranges = HashRanges.of((0, 16), (1 << 63, SPACE))
    assert ranges.selector(HashBy.NAMESPACE) == (
        "shardRange(object.metadata.namespace, '0x0000000000000000', '0x0000000000000010')"
        " || shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')"
    )
    assert HashRanges.of((0, 1)).selector(HashBy.UID).startswith("shardRange(object.metadata.uid, ")
    with pytest.raises(ValueError, match="no range"):
        NOWHERE.selector(HashBy.UID)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("0x0-0x1", "no hash"),
        ("0x0000000000000000", "no range"),
        ("0x00000000000000FF-0x10000000000000000", "lower-case"),
        ("0x0000000000000001-0x0000000000000001", "ends before"),
        ("0x0000000000000000-0x20000000000000000", "no hash"),
        ("nonsense", "no range"),
    ],
)
def test_what_makes_no_sense_is_refused_and_holds_everything(text: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        HashRanges.parse(text)
    assert held_ranges({HELD_RANGES_ANNOTATION: text}) == EVERYWHERE


def test_a_lease_without_the_annotation_holds_nothing() -> None:
    assert held_ranges(None) == held_ranges({}) == held_ranges({HELD_RANGES_ANNOTATION: " "}) == NOWHERE
    text = f"{FIRST}-{MIDDLE}, {MIDDLE}-{render_bound(SPACE)}"
    assert held_ranges({HELD_RANGES_ANNOTATION: text}) == EVERYWHERE


@pytest.mark.parametrize(
    ("by", "ranges", "error"),
    [
        ("Name", [AssignedRange(FIRST, "a")], "Namespace or UID"),
        ("UID", [], "must start at 0x0000000000000000"),
        ("UID", [AssignedRange(MIDDLE, "a")], "must start at"),
        ("UID", [AssignedRange(FIRST, "a"), AssignedRange(FIRST, "b")], "sorted"),
        ("UID", [AssignedRange(FIRST, "a"), AssignedRange(render_bound(SPACE), "b")], "sorted"),
        ("UID", [AssignedRange(FIRST, "a"), AssignedRange(MIDDLE, "b"), AssignedRange("0x1", "c")], "no hash"),
    ],
)
def test_an_assignment_that_does_not_cover_the_space_is_refused(
    by: str, ranges: list[AssignedRange], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=error):
        parse_assignment(RingAssignmentSpec(by, ranges))


def test_an_assignment_goes_over_the_wire_as_documented() -> None:
    named = Named(HashBy.NAMESPACE, {"op-0": HashRanges.of((0, 16)), "op-2": HashRanges.of((1 << 63, SPACE))})
    assert msgspec.to_builtins(render_assignment(named)) == {
        "hashBy": "Namespace",
        "ranges": [
            {"start": "0x0000000000000000", "shard": "op-0"},
            {"start": "0x0000000000000010"},
            {"start": "0x8000000000000000", "shard": "op-2"},
        ],
    }


def test_two_shards_for_one_range_are_never_written() -> None:
    named = Named(HashBy.UID, {"a": HashRanges.of((0, 16)), "b": HashRanges.of((15, 32))})
    with pytest.raises(ValueError, match="two shards"):
        render_assignment(named)
