"""What is written by hand, or wrongly, is told apart from what says nothing."""

from __future__ import annotations

import msgspec
import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    HELD_RANGES_ANNOTATION,
    MAX_COUNTS,
    NAMESPACE_COUNTS_ANNOTATION,
    NOWHERE,
    SPACE,
    AssignedRange,
    HashBy,
    HashRanges,
    Named,
    RingAssignmentSpec,
    homes_of,
    parse_assignment,
    parse_held,
    point_of,
    read_counts,
    render_assignment,
    render_bound,
    render_counts,
    render_held,
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
    assert parse_held(text) == (EVERYWHERE, None)
    assert parse_held(f"{text}@then") == (EVERYWHERE, "then")


def test_an_annotation_that_says_nothing_of_its_write_is_read_as_it_was() -> None:
    assert parse_held(" ") == parse_held("") == (NOWHERE, None)
    assert parse_held(f"{FIRST}-{MIDDLE}, {MIDDLE}-{render_bound(SPACE)}") == (EVERYWHERE, None)


THEN, NOW = "2030-01-01T00:00:00.000000Z", "2030-01-01T00:00:05.000000Z"


@pytest.mark.parametrize(
    ("said", "held", "left"),
    [
        (None, None, NOWHERE),
        ("", NOWHERE, NOWHERE),
        (str(EVERYWHERE), EVERYWHERE, NOWHERE),
        (render_held(EVERYWHERE, NOW), EVERYWHERE, NOWHERE),
        (render_held(NOWHERE, NOW), NOWHERE, NOWHERE),
        (render_held(EVERYWHERE, THEN), None, EVERYWHERE),
        (render_held(NOWHERE, THEN), None, NOWHERE),
        ("nonsense", EVERYWHERE, NOWHERE),
        (f"nonsense@{NOW}", EVERYWHERE, NOWHERE),
        (f"nonsense@{THEN}", None, EVERYWHERE),
    ],
)
def test_what_a_lease_says_it_holds_is_of_the_write_it_came_with(
    said: str | None, held: HashRanges | None, left: HashRanges
) -> None:
    annotations = {} if said is None else {HELD_RANGES_ANNOTATION: said}
    lease = Lease(ObjectMeta(name="a", annotations=annotations), LeaseSpec("a", 15, renew_time=NOW))
    assert (lease.held_ranges, lease.left_ranges) == (held, left)


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


def test_an_assignment_says_by_whose_lease_a_shard_was_named_and_another_of_that_name_is_not() -> None:
    low, high = HashRanges.of((0, 16)), HashRanges.of((16, SPACE))
    spec = render_assignment(Named(HashBy.UID, {"a": low, "b": high}), {"a": "one"})
    assert msgspec.to_builtins(spec)["ranges"] == [
        {"start": "0x0000000000000000", "shard": "a", "namespace": "one"},
        {"start": "0x0000000000000010", "shard": "b"},
    ]
    assert homes_of(spec) == {"a": {"one"}, "b": {""}}
    assert parse_assignment(spec).shards == {"a": low, "b": high}
    for reader, shards in {
        ("a", "one"): {"a": low, "b": high},
        ("a", "two"): {"b": high},
        ("b", "two"): {"a": low},
    }.items():
        assert parse_assignment(spec, reader).shards == shards
    mixed = RingAssignmentSpec("UID", [spec.ranges[0], AssignedRange("0x0000000000000010", "a", "two")])
    assert homes_of(mixed) == {"a": {"one", "two"}}
    assert parse_assignment(mixed, ("a", "two")).shards == {"a": high}


def test_what_does_not_say_its_namespace_names_a_reader_only_where_nothing_does() -> None:
    low, high = HashRanges.of((0, 16)), HashRanges.of((16, SPACE))
    spec = render_assignment(Named(HashBy.UID, {"a": low, "b": high}))
    assert parse_assignment(spec, ("a", "two")).shards == {"a": low, "b": high}
    edited = RingAssignmentSpec("UID", [spec.ranges[0], AssignedRange("0x0000000000000010", "b", "two")])
    assert parse_assignment(edited, ("a", "two")).shards == {"b": high}
    assert parse_assignment(edited, ("b", "two")).shards == {"a": low, "b": high}
    assert parse_assignment(edited).shards == {"a": low, "b": high}


def test_two_shards_for_one_range_are_never_written() -> None:
    named = Named(HashBy.UID, {"a": HashRanges.of((0, 16)), "b": HashRanges.of((15, 32))})
    with pytest.raises(ValueError, match="two shards"):
        render_assignment(named)


def test_counts_are_told_by_hash_in_quarters_of_a_doubling_and_read_back_nearly_so() -> None:
    counts = {f"namespace-{number}": 3**number for number in range(20)}
    told = read_counts({NAMESPACE_COUNTS_ANNOTATION: render_counts(counts)})
    assert told.keys() == {point_of(name) for name in counts}
    for name, count in counts.items():
        assert 0.9 < told[point_of(name)] / count < 1.1
    assert render_counts({**counts, "namespace-19": 3**19 + 1000}) == render_counts(counts), "hardly another count"


def test_of_many_namespaces_the_largest_are_told() -> None:
    told = render_counts({f"namespace-{number}": number for number in range(1, 2 * MAX_COUNTS)})
    assert len(told.split(",")) == MAX_COUNTS
    found = read_counts({NAMESPACE_COUNTS_ANNOTATION: told})
    assert point_of(f"namespace-{2 * MAX_COUNTS - 1}") in found
    assert point_of("namespace-1") not in found


@pytest.mark.parametrize(
    "text", ["", ",", "x", "85944171f73967e8", "85944171f73967e8=-1", "85944171F73967E8=1", "85944171f73967e8=1.5"]
)
def test_counts_that_make_no_sense_say_nothing(text: str) -> None:
    assert read_counts({NAMESPACE_COUNTS_ANNOTATION: text}) == {}


def test_a_count_that_is_too_large_is_no_error_and_what_is_too_much_is_not_read() -> None:
    assert read_counts({NAMESPACE_COUNTS_ANNOTATION: "85944171f73967e8=999"}) == {point_of("foobar"): 2.0**64}
    endless = ",".join(f"{number:016x}=1" for number in range(10 * MAX_COUNTS))
    assert len(read_counts({NAMESPACE_COUNTS_ANNOTATION: endless})) <= MAX_COUNTS
    assert read_counts(None) == {}
