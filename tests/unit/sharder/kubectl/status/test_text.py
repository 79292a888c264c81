"""What a ring's table shows where there is little room, or little to say of a shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sharder.core.conditions import ConditionReason
from sharder.core.ringspec import Role
from sharder.core.status import Health, Unsettled, render_status
from sharder.kubectl.documents import overview_document
from sharder.kubectl.shards import read_membership, read_shard_status
from sharder.kubectl.status.overview import Condition, Overview, ResourceCount, read_conditions
from sharder.kubectl.status.text import MAX_COLUMNS, render_overview
from sharder.kubectl.text import Painter
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import GroupResource
from tests.unit.sharder.kubectl.rings import NOW, lease, members

POD = "website-controller-7d4f9c6b5d-"
FOUR = ("websites.example.com", "deployments.apps", "services", "configmaps")


def count(name: str, by_shard: Mapping[str, int], role: Role) -> ResourceCount:
    resource, _, group = name.partition(".")
    return ResourceCount(GroupResource(group, resource), role, False, by_shard, {}, 0, 0, 0, 0, 0, {})


def overview_of(*leases: Lease, resources: Mapping[str, Mapping[str, int]]) -> Overview:
    statuses = tuple(read_shard_status(each, NOW) for each in leases)
    roles = (Role.MAIN if at == 0 else Role.CONTROLLED for at in range(len(resources)))
    counts = tuple(count(name, by_shard, role) for (name, by_shard), role in zip(resources.items(), roles, strict=True))
    return Overview("websites", True, (), True, (), "", statuses, members(leases[0].metadata.name), counts, ())


def table_of(overview: Overview, *, colours: bool = False, wide: bool = False) -> list[str]:
    lines = render_overview(overview, Painter(colours), wide=wide)
    return lines[lines.index("") + 1 :]


def test_four_resources_and_names_of_pods_fit_into_a_terminal() -> None:
    names = [f"{POD}{end}" for end in ("x2k8p", "zz9qr")]
    resources = {name: {names[0]: 1234, names[1]: 1180} for name in FOUR}
    overview = overview_of(*(lease(name) for name in names), resources=resources)
    lines = table_of(overview)
    assert lines[0].split()[:3] == ["SHARD", "STATE", "RENEWED"]
    assert "WEBSITES   DEPLOYMENTS   SERVICES   CONFIGMAPS   DRAINING" in lines[0]
    assert max(map(len, lines)) <= MAX_COLUMNS
    wide = table_of(overview, wide=True)
    assert "HELD" in wide[0]
    assert "SHARE" in wide[0]


def test_what_is_left_out_first_are_the_bars() -> None:
    overview = overview_of(lease("one"), resources={"secrets": {"one": 3}})
    assert "█" in "".join(table_of(overview, colours=True))
    name = "s" * 40
    resources = {each: {name: 3} for each in FOUR[1:]}
    wide = overview_of(lease(name), resources={"websites.example.com": {name: 3}, **resources})
    assert "█" not in "".join(table_of(wide, colours=True))


def test_resources_of_one_plural_keep_their_groups() -> None:
    resources = {"services": {"one": 1}, "services.serving.example": {"one": 1}}
    assert "SERVICES   SERVICES.SERVING.EXAMPLE" in table_of(overview_of(lease("one"), resources=resources))[0]


def test_a_shard_that_left_in_order_is_none_that_lacks() -> None:
    leases = lease("one"), lease("gone", holder="", state="dead"), lease("emptied", holder="", state="dead")
    overview = overview_of(*leases, resources={"secrets": {"one": 3, "emptied": 1}})
    text = "\n".join(render_overview(overview, Painter(False)))
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert "1 of 2 shards available" in text
    assert (rows["gone"][1], rows["emptied"][1]) == ("left", "dead")
    shards = {each["name"]: each["left"] for each in overview_document(overview)["shards"]}
    assert shards == {"one": False, "gone": True, "emptied": False}


def test_the_label_is_named_by_which_objects_are_listed() -> None:
    overview = overview_of(lease("one"), resources={"secrets": {"one": 3}})
    label = overview_document(overview)["shardLabel"]
    assert label.startswith("shard.alpha.sharding.timebertt.dev/clusterring-")
    assert f"  label: {label}" in render_overview(overview, Painter(False))


@pytest.mark.parametrize("stranded", [0, 2])
@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (ConditionReason.MOVING, False),
        (ConditionReason.NOT_YET_KNOWN, False),
        (ConditionReason.REFUSED, True),
        (ConditionReason.JOINING, True),
        (ConditionReason.WAITS_FOR_RIGHTS, True),
    ],
)
def test_of_what_this_command_counts_itself_only_what_waits_for_people_is_told_by_the_sharder_as_well(
    reason: ConditionReason, told: bool, stranded: int
) -> None:
    counted = overview_of(lease("one"), resources={"secrets": {"one": 3}})
    settled = Condition("Settled", False, reason, "see to it", 700)
    resources = (replace(counted.resources[0], stranded=stranded),)
    lines = render_overview(replace(counted, resources=resources, conditions=(settled,)), Painter(False))
    assert (f"  ✗ Settled ({reason} for 11m): see to it" in lines) is told


def test_a_shard_that_gets_nothing_for_what_its_lease_says_does_not_count_as_in_the_rings_status() -> None:
    leases = lease("one"), lease("two"), lease("long", duration=7200)
    statuses = tuple(read_shard_status(each, NOW) for each in leases)
    overview = overview_of(*leases, resources={"secrets": {"one": 3}})
    overview = replace(overview, membership=read_membership(leases, statuses))
    assert "2 of 3 shards available" in render_overview(overview, Painter(False))[0]
    assert overview_document(overview)["shards"][2]["available"], "it holds its lease"


def test_a_holder_of_any_length_makes_no_column_of_that_width() -> None:
    overview = overview_of(lease("one"), lease("two", holder="x" * 200_000), resources={"secrets": {"one": 3}})
    assert max(map(len, table_of(overview, wide=True))) < 300


def conditions_of(**known: Any) -> tuple[Condition, ...]:
    health = Health(generation=2, shards=3, **{"available": 3, "unsettled": Unsettled(), **known})
    return read_conditions(render_status(health, None, NOW), {})


@pytest.mark.parametrize("else_", [{}, {"moving": "1 range changes hands"}, {"unsettled": Unsettled(draining=1)}])
@pytest.mark.parametrize("reason", [ConditionReason.NOT_TAKEN_OVER, ConditionReason.NOBODY_READY])
def test_a_shard_that_is_gone_and_that_nobody_takes_over_does_not_count(
    reason: ConditionReason, else_: dict[str, Any]
) -> None:
    """Nobody may write its Lease, so that this says what it did, and what the shard has is where its label says."""
    leases = lease("one"), lease("gone", renewed=75), lease("late", renewed=20, state="uncertain")
    resources = {"secrets": {"one": 3, "gone": 3}}
    why = {"not_acquired": ("x",)} if reason is ConditionReason.NOT_TAKEN_OVER else {"abandoned": ("x",)}
    overview = replace(overview_of(*leases, resources=resources), conditions=conditions_of(**why, **else_))
    assert "1 of 3 shards available  not settled" in render_overview(overview, Painter(False))[0]
    assert overview.wrong
    fine = replace(overview, conditions=conditions_of(unsettled=Unsettled(draining=1)))
    assert not fine.wrong
    assert "3 of 3 shards available  settled" in render_overview(fine, Painter(False))[0]
    assert replace(overview, up_to_date=False).settled, "said of another spec"
