"""Objects that nobody moves before somebody has seen to something: the check says what the sharder says of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharder.kubectl.check.findings import Level
from sharder.kubectl.check.rings import check_objects
from sharder.kubectl.status.overview import Condition
from tests.unit.sharder.kubectl.check.test_rings import unsettled

REFUSED = "2 stranded; the API server refuses to change some of them"


@pytest.mark.parametrize(("seconds", "level", "lasts"), [(59, Level.WARNING, ""), (61, Level.PROBLEM, ", for 61s")])
def test_what_objects_wait_for_is_told_with_their_number(seconds: float, level: Level, lasts: str) -> None:
    refused = Condition("Settled", False, "Refused", REFUSED, seconds)
    [finding] = check_objects(replace(unsettled(None), conditions=(refused,)), None)
    counts = "2 stranded; on shards without lease: ghost"
    assert (finding.level, finding.message) == (level, f"{counts}{lasts}; condition Settled (Refused): {REFUSED}")


def test_what_the_sharder_says_of_a_spec_before_this_one_is_not_repeated() -> None:
    rights = Condition("Settled", None, "WaitsForRights", "nothing gets a shard; see PermissionsGranted", 61)
    told = replace(unsettled(None), conditions=(rights,))
    [finding], [outdated] = check_objects(told, None), check_objects(replace(told, up_to_date=False), None)
    assert finding.message.endswith(
        "; condition Settled (WaitsForRights): nothing gets a shard; see PermissionsGranted"
    )
    assert outdated.message.endswith(": on their way, or about to be")
