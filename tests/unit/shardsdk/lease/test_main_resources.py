"""What a shard's Lease says of the resources that its process reconciles as main ones."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest

from shardsdk.lease.claim import Claim, render_create, render_grace, render_hold, render_release
from shardsdk.protocol.labels import INSTANCE_ANNOTATION, MAIN_RESOURCES_ANNOTATION
from shardsdk.protocol.leases import MAX_MAIN_RESOURCES, Lease, render_instance
from shardsdk.protocol.objects import GroupResource
from shardsdk.testing.patching import merge

NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)
LATER: Final = NOW + timedelta(seconds=2)
MAINS: Final = frozenset({GroupResource("", "secrets"), GroupResource("apps", "deployments")})
NOTHING: Final = frozenset[GroupResource]()


def claim(instance: str = "uid", mains: frozenset[GroupResource] = MAINS) -> Claim:
    return Claim("default", "one", "one", 15, instance=instance, ring="ring", mains=mains)


def parsed(document: Any) -> Lease:
    return msgspec.convert({**document, "metadata": {**document["metadata"], "resourceVersion": "1"}}, Lease)


MADE: Final = render_create(claim(), NOW)
RENEWED: Final = MADE["spec"]["renewTime"]


def patched(patch: Any) -> Lease:
    return parsed(merge(MADE, patch))


def test_a_lease_says_it_from_the_first_moment_on_and_with_every_renewal() -> None:
    assert parsed(MADE).main_resources == MAINS
    assert patched(render_hold(claim(), parsed(MADE), LATER, ())).main_resources == MAINS


def test_an_instance_may_be_called_anything() -> None:
    assert parsed(render_create(claim("user@host"), NOW)).main_resources == MAINS


@pytest.mark.parametrize("mains", [NOTHING, frozenset({GroupResource("", "secrets")})])
def test_the_next_process_says_its_own(mains: frozenset[GroupResource]) -> None:
    for instance in ("uid", "another"):
        assert patched(render_hold(claim(instance, mains), parsed(MADE), LATER, ())).main_resources == mains


def test_who_does_not_know_the_annotation_has_not_said_what_it_says() -> None:
    """client-go rewrites the spec, and leaves the annotations; a shardsdk before rewrites those that it knows."""
    renewed = "2030-01-01T00:00:02.000000Z"
    spec = {"spec": {**MADE["spec"], "renewTime": renewed}}
    assert patched(spec).main_resources == NOTHING
    instance = {"annotations": {INSTANCE_ANNOTATION: render_instance("uid", renewed)}}
    assert patched(spec | {"metadata": instance}).main_resources == NOTHING


def test_who_leaves_the_lease_takes_along_what_it_says() -> None:
    patch = render_release(claim(), parsed(MADE), LATER)
    assert patch["metadata"]["annotations"][MAIN_RESOURCES_ANNOTATION] is None
    never_said = render_release(claim(mains=NOTHING), parsed(render_create(claim(mains=NOTHING), NOW)), LATER)
    assert MAIN_RESOURCES_ANNOTATION not in never_said["metadata"]["annotations"]


def test_it_is_said_for_the_next_process_as_well_that_the_lease_is_left_to() -> None:
    left = render_grace(claim(), parsed(MADE), LATER, 60)
    assert (patched(left).instance, patched(left).main_resources) == ("", MAINS)
    taken = render_hold(claim("another", NOTHING), patched(left), LATER + timedelta(seconds=2), ())
    assert parsed(merge(merge(MADE, left), taken)).main_resources == NOTHING


@pytest.mark.parametrize("said", ["", "@", f"@{RENEWED}", "secrets", "secrets@", "secrets@uid", f",.@{RENEWED}"])
def test_what_makes_no_sense_says_nothing(said: str) -> None:
    assert patched({"metadata": {"annotations": {MAIN_RESOURCES_ANNOTATION: said}}}).main_resources == NOTHING


def test_what_leases_have_said_is_kept_no_longer_than_they_are() -> None:
    """A shard may say what it likes, and something else with each renewal: 256 KiB of names take megabytes."""
    kept: list[int] = []
    tracemalloc.start()
    try:
        for number in range(4):
            mains = frozenset(GroupResource("", f"of-{number}-{each}") for each in range(MAX_MAIN_RESOURCES))
            assert parsed(render_create(claim(mains=mains), NOW)).main_resources == mains
            kept.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert kept[-1] < 2 * kept[0], "the last one's, as the first one's, and those between are gone"


def test_of_tens_of_thousands_of_resources_few_are_heard() -> None:
    many = frozenset(GroupResource("", f"kind{number:05}") for number in range(20_000))

    assert len(parsed(render_create(claim(mains=many), NOW)).main_resources) == MAX_MAIN_RESOURCES
