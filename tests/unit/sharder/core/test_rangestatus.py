"""What people are told of a ring by ranges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sharder.core.rangestatus import (
    Loads,
    Moving,
    describe_moving,
    describe_unfit,
    in_transit,
    loads_by_namespace,
    loads_by_width,
    render_range_status,
)
from shardsdk.protocol.ranges import EVERYWHERE, NOWHERE, SPACE, HashBy, HashRanges, Named, point_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=90)
QUARTER = SPACE // 4
LOW, SECOND, HIGH = (
    HashRanges.of((0, QUARTER)),
    HashRanges.of((QUARTER, 2 * QUARTER)),
    HashRanges.of((2 * QUARTER, SPACE)),
)
NOBODY = Named(HashBy.UID, {})
AIM = Named(HashBy.UID, {"a": LOW, "b": SECOND, "c": HIGH})


def conditions(named: Named, moving: tuple[Moving, ...], loads: Loads, *homes: str) -> dict[str, tuple[str, str, str]]:
    status = render_range_status(3, named, moving, loads, homes, {}, NOW)
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in status["conditions"]}


def test_a_range_on_its_way_is_told_with_who_has_it_who_gets_it_and_since_when() -> None:
    held = {"a": LOW | SECOND, "c": HIGH}
    first = in_transit(SECOND, AIM, held, (), NOW)
    assert first == (Moving(QUARTER, 2 * QUARTER, "a", "b", NOW),)
    # Half of it has come free: it is on its way since then as well.
    half = HashRanges.of((QUARTER, QUARTER + QUARTER // 2))
    again = in_transit(SECOND, AIM, {"a": LOW | half, "c": HIGH}, first, LATER)
    assert [(each.holder, each.target, each.since) for each in again] == [("a", "b", NOW), (None, "b", NOW)]
    assert in_transit(NOWHERE, AIM, held, again, LATER) == ()


def test_the_longest_comes_first() -> None:
    held = {"a": LOW | SECOND, "c": HIGH}
    before = in_transit(SECOND, AIM, held, (), NOW)
    both = in_transit(LOW | SECOND, AIM, {"b": LOW, **held}, before, LATER)
    assert [each.since for each in both] == [NOW, LATER]
    assert describe_moving(both, loads_by_width(AIM, "abc")) == f"2 ranges change hands, the longest: {both[0]}"
    assert str(both[0]) == "0x4000000000000000-0x8000000000000000 from a to b"
    assert describe_moving((), Loads({})) is None


def test_a_status_says_it_all_and_stays_when_nothing_changes() -> None:
    moving = in_transit(SECOND, AIM, {"a": LOW | SECOND, "c": HIGH}, (), NOW)
    named = Named(HashBy.UID, {"a": LOW, "c": HIGH})
    loads = loads_by_width(named, ("a", "b", "c"))
    status = render_range_status(3, named, moving, loads, (), {}, NOW)
    assert (status["shards"], status["ranges"], status["rangesInTransit"]) == (2, 2, 1)
    assert status["inTransit"] == [
        {
            "start": "0x4000000000000000",
            "end": "0x8000000000000000",
            "from": "a",
            "to": "b",
            "since": "2026-01-01T00:00:00Z",
        }
    ]
    assert [(each["shard"], each["share"]) for each in status["shares"]] == [
        ("a", "33.3%"),
        ("b", "0.0%"),
        ("c", "66.7%"),
    ]
    assert render_range_status(3, named, moving, loads, (), status, LATER) == status


def test_what_lasts_says_where_to_look() -> None:
    moving = in_transit(SECOND, AIM, {"a": LOW | SECOND, "c": HIGH}, (), NOW)
    status, reason, message = conditions(AIM, moving, Loads({}))["Settled"]
    assert (status, reason) == ("False", "Moving")
    assert "look into the log of a, or stop it" in message
    nobodys = in_transit(SECOND, AIM, {"a": LOW, "c": HIGH}, (), NOW)
    assert "look into the log of b, or stop it" in conditions(AIM, nobodys, loads_by_width(AIM, "abc"))["Settled"][2]
    assert conditions(AIM, (), Loads({}))["Settled"][0] == "True"


def test_shards_that_are_named_for_nothing_are_told_with_why_and_what_to_do() -> None:
    assert describe_unfit((), ()) is None
    reason, words = describe_unfit({"x", "y"}, {"z"}) or ("", "")
    assert (reason, "Lease of x, y does not say" in words) == ("LabelsOnly", True)
    assert "it lacks the annotation" in words
    assert "is not the Lease's renewTime" in words
    assert "Lease of z has not said in time" in words
    assert "has not said" not in (describe_unfit({"x"}, ()) or ("", ""))[1]
    reason, words = describe_unfit((), {f"shard-{number:02}" for number in range(12)}) or ("", "")
    assert reason == "NothingTaken"
    assert "shard-09 and 2 more has not said" in words
    assert "others get that, if any works" in words
    assert "restart it" in words
    assert "its held-ranges then has no `@`" in words


def test_a_ring_without_a_shard_says_that_it_lacks_one() -> None:
    moving = in_transit(EVERYWHERE, NOBODY, {}, (), NOW)
    status, reason, message = conditions(NOBODY, moving, Loads({}))["Settled"]
    assert (status, reason) == ("False", "NoShard")
    assert "start a shard" in message
    assert describe_moving(moving, Loads({})) == message
    held = in_transit(EVERYWHERE, NOBODY, {"a": LOW}, (), NOW)
    assert conditions(NOBODY, held, Loads({}))["Settled"][1] == "Moving", "who is gone may be working"


def test_why_a_ring_is_uneven_and_what_to_do_is_told() -> None:
    everything = Named(HashBy.NAMESPACE, {"a": EVERYWHERE})
    many = {f"team-{number}": 1.0 for number in range(40)}
    heavy = loads_by_namespace(everything, ("a", "b"), {**many, "huge": 60.0})
    assert heavy.shards == {"a": 100.0, "b": 0.0}
    status, reason, message = conditions(everything, (), heavy)["Even"]
    assert (status, reason) == ("False", "LargeNamespace")
    assert "namespace huge alone has 1.20 times a shard's part" in message
    assert (
        conditions(everything, (), loads_by_namespace(everything, ("a", "b"), {"x": 1.0}))["Even"][1] == "FewNamespaces"
    )
    assert conditions(everything, (), loads_by_namespace(everything, ("a", "b"), many))["Even"][1] == "Uneven"
    assert conditions(everything, (), loads_by_namespace(everything, ("a",), many))["Even"][0] == "True"
    assert conditions(AIM, (), loads_by_width(AIM, ("a", "b")))["Even"][:2] == ("True", "Even")


def test_shards_that_cannot_look_at_each_other_are_told() -> None:
    status, reason, message = conditions(AIM, (), Loads({}), "there", "here")["Together"]
    assert (status, reason) == ("False", "ManyNamespaces")
    assert "namespaces: here, there, and" in message
    assert "run all in one" in message
    assert conditions(AIM, (), Loads({}), "here")["Together"][0] == "True"
    assert conditions(AIM, (), Loads({}))["Together"][0] == "True"


def test_a_namespace_counts_for_who_is_named_at_its_point() -> None:
    here = point_of("here")
    named = Named(HashBy.NAMESPACE, {"a": HashRanges.of((here, here + 1)), "b": HashRanges.of((here + 1, SPACE))})
    assert loads_by_namespace(named, ("a", "b"), {"here": 2.0}).shards == {"a": 2.0, "b": 0.0}


def test_whoever_has_left_its_lease_to_its_next_process_is_waited_for_and_has_no_log_to_look_into() -> None:
    moving = in_transit(SECOND, AIM, {"a": LOW | SECOND, "c": HIGH}, (), NOW)
    status = render_range_status(3, AIM, moving, loads_by_width(AIM, "abc"), (), {}, NOW, {"a"})
    message = next(each["message"] for each in status["conditions"] if each["type"] == "Settled")
    assert message.endswith(
        "; a ended with a restart grace: that waits for its next process, or until its Lease has run out"
    )
