"""RingAssignment's CRD and `parse_assignment` accept the same assignments, on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from localcluster import AdminClient, AdminError, ControlPlane
from sharder.core.transit import Transit, read_transit, render_transit
from sharder.ranges.store import allows_fewer
from shardsdk.errors import ConfigurationError, Invalid
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    MAX_RANGES,
    RING_ASSIGNMENTS,
    SPACE,
    HashBy,
    HashRanges,
    Named,
    RingAssignmentSpec,
    homes_of,
    parse_assignment,
    render_assignment,
    render_bound,
)

ASSIGNMENTS = f"/apis/{RING_ASSIGNMENTS.group}/{RING_ASSIGNMENTS.version}/{RING_ASSIGNMENTS.plural}"
FIRST, MIDDLE, LAST = "0x0000000000000000", "0x8000000000000000", "0xffffffffffffffff"
NAME = "crd-contract"

GOOD = {
    "one shard": Named(HashBy.NAMESPACE, {"a": EVERYWHERE}),
    "nobody": Named(HashBy.UID, {}),
    "two shards and a range that changes hands": Named(
        HashBy.UID, {"a": HashRanges.of((0, 16)), "b": HashRanges.of((32, SPACE))}
    ),
    "the last hash": Named(HashBy.UID, {"a": HashRanges.of((0, SPACE - 1)), "b": HashRanges.of((SPACE - 1, SPACE))}),
    "as many ranges as there may be": Named(
        HashBy.UID, {f"shard-{each}": HashRanges.of((each * 16, each * 16 + 16)) for each in range(MAX_RANGES - 1)}
    ),
}

BAD: dict[str, Any] = {
    "no hash": {"ranges": [{"start": FIRST, "shard": "a"}]},
    "an unknown hash": {"hashBy": "Name", "ranges": [{"start": FIRST, "shard": "a"}]},
    "no ranges": {"hashBy": "UID"},
    "an empty list": {"hashBy": "UID", "ranges": []},
    "not from the start": {"hashBy": "UID", "ranges": [{"start": MIDDLE, "shard": "a"}]},
    "one start twice": {"hashBy": "UID", "ranges": [{"start": FIRST}, {"start": FIRST, "shard": "a"}]},
    "capitals": {"hashBy": "UID", "ranges": [{"start": FIRST}, {"start": "0xFFFFFFFFFFFFFFFF"}]},
    "too few digits": {"hashBy": "UID", "ranges": [{"start": "0x0"}]},
    "a number": {"hashBy": "UID", "ranges": [{"start": 0}]},
    "a range is a string": {"hashBy": "UID", "ranges": [FIRST]},
}


#: What no rule can say that API servers from 1.30 on understand.
OUT_OF_ORDER = {"hashBy": "UID", "ranges": [{"start": FIRST}, {"start": LAST}, {"start": MIDDLE}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crd(control_plane: ControlPlane) -> None:
    await control_plane.apply(Path("crds"))


async def dry_run(admin: AdminClient, spec: Any) -> dict[str, Any]:
    """What would be stored; strict about unknown fields, as kubectl is."""
    body = {
        "apiVersion": RING_ASSIGNMENTS.api_version,
        "kind": RING_ASSIGNMENTS.kind,
        "metadata": {"name": NAME},
        "spec": spec,
    }
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    stored: dict[str, Any] = await admin.request("POST", ASSIGNMENTS, body=body, query=query)
    return stored


@pytest.mark.usefixtures("crd")
@pytest.mark.parametrize("named", GOOD.values(), ids=GOOD)
async def test_what_the_sharder_writes_is_accepted_and_read_as_it_was_meant(admin: AdminClient, named: Named) -> None:
    homes = dict.fromkeys(named.shards, "shards")
    stored = await dry_run(admin, msgspec.to_builtins(render_assignment(named, homes)))

    spec = msgspec.convert(stored["spec"], RingAssignmentSpec)
    assert parse_assignment(spec) == named
    assert homes_of(spec) == {shard: frozenset({home}) for shard, home in homes.items()}


@pytest.mark.usefixtures("crd")
async def test_what_is_said_of_ranges_that_change_hands_is_kept(admin: AdminClient) -> None:
    low, high = HashRanges.of((16, 32)), HashRanges.of((32, SPACE))
    said = Transit(taken={"a": low}, meant={"b": low | high}, homes={"a": "shards"})
    named = Named(HashBy.UID, {"c": HashRanges.of((0, 16))})
    spec = render_transit(named, {"c": "shards"}, said)
    stored = await dry_run(admin, msgspec.to_builtins(spec))

    assert msgspec.convert(stored["spec"], RingAssignmentSpec) == spec
    assert read_transit(spec) == said


@pytest.mark.usefixtures("crd")
async def test_of_more_ranges_than_it_allows_it_is_told_that_they_are_too_many(admin: AdminClient) -> None:
    ranges = [{"start": render_bound(each)} for each in range(MAX_RANGES + 1)]
    with pytest.raises(AdminError) as refused:
        await dry_run(admin, {"hashBy": "UID", "ranges": ranges})
    assert allows_fewer(Invalid(str(refused.value)))


@pytest.mark.usefixtures("crd")
@pytest.mark.parametrize("spec", BAD.values(), ids=BAD)
async def test_nonsense_is_refused_by_both(admin: AdminClient, spec: Any) -> None:
    with pytest.raises((ConfigurationError, msgspec.ValidationError)):
        parse_assignment(msgspec.convert(spec, RingAssignmentSpec))

    with pytest.raises(AdminError) as refused:
        await dry_run(admin, spec)
    assert refused.value.status == 422


@pytest.mark.usefixtures("crd")
async def test_ranges_out_of_order_are_the_parsers_to_refuse(admin: AdminClient) -> None:
    stored = await dry_run(admin, OUT_OF_ORDER)

    with pytest.raises(ConfigurationError, match="sorted by their start"):
        parse_assignment(msgspec.convert(stored["spec"], RingAssignmentSpec))


@pytest.mark.usefixtures("crd")
async def test_refusal_says_what_to_change(admin: AdminClient) -> None:
    with pytest.raises(AdminError, match="must start at 0x0000000000000000"):
        await dry_run(admin, BAD["not from the start"])


@pytest.mark.usefixtures("crd")
async def test_columns_show_what_the_status_says(admin: AdminClient, control_plane: ControlPlane) -> None:
    settled = {
        "type": "Settled",
        "status": "False",
        "reason": "Moving",
        "message": "waits for a",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    share = {"shard": "a", "ranges": 3, "share": "40.0%"}
    moving = {"start": FIRST, "end": "0x10000000000000000", "from": "a", "to": "b", "since": "2026-01-01T00:00:00Z"}
    status = {
        "shards": 2,
        "ranges": 5,
        "rangesInTransit": 1,
        "shares": [share],
        "inTransit": [moving],
        "conditions": [settled],
    }
    body = {"metadata": {"name": NAME}, "spec": msgspec.to_builtins(render_assignment(GOOD["one shard"]))}
    try:
        await admin.request(
            "POST",
            ASSIGNMENTS,
            body={"apiVersion": RING_ASSIGNMENTS.api_version, "kind": RING_ASSIGNMENTS.kind, **body},
        )
        written = await admin.request(
            "PATCH",
            f"{ASSIGNMENTS}/{NAME}/status",
            body={"status": status},
            content_type="application/merge-patch+json",
        )
        assert written["status"] == status
        shown = (await control_plane.kubectl("get", "ringassignment", NAME, "--no-headers")).split()
        assert shown[:6] == [NAME, "Namespace", "2", "5", "1", "False"]
        wide = await control_plane.kubectl("get", "ringassignment", NAME, "-o", "wide", "--no-headers")
        assert wide.rstrip().endswith("waits for a")
    finally:
        await admin.request("DELETE", f"{ASSIGNMENTS}/{NAME}")
