"""What the webhook answers for a new object that wears another one's labels."""

from __future__ import annotations

import pytest

from sharder.core.admission import Answer, AnswerOutcome, Request
from sharder.core.membership import Membership
from tests.unit.sharder.core.test_admission import DRAIN, EMPTY, SHARD, SHARDS, planned, request

MINE = SHARDS.target("/Secret/n/x")
POINTER = "/metadata/labels/" + SHARD.replace("/", "~1")


@pytest.mark.parametrize("copied", ["a", "b", "c", "gone", ""])
@pytest.mark.parametrize("draining", [False, True])
def test_a_new_main_object_with_a_copied_label_gets_the_shard_that_it_belongs_to(copied: str, draining: bool) -> None:
    worn = {SHARD: copied, "app": "x"} | ({DRAIN: "true"} if draining else {})
    answer = planned(request(new=worn))
    if copied == MINE and not draining:
        assert answer == Answer(None, AnswerOutcome.ALREADY_LABELLED)
        return
    assert (answer.outcome, answer.shard) == (AnswerOutcome.ASSIGNED, MINE)
    drained = {"op": "remove", "path": "/metadata/labels/" + DRAIN.replace("/", "~1")}
    assert answer.patch == [{"op": "add", "path": POINTER, "value": MINE}, *([drained] if draining else [])]
    assert planned(request(new=worn, dryRun=True)) == Answer(answer.patch, answer.outcome, MINE, dry_run=True)


@pytest.mark.parametrize(
    ("asked", "membership", "outcome"),
    [
        (request(new={SHARD: "a"}), EMPTY, AnswerOutcome.NO_SHARD),
        (
            request(new={SHARD: "a"}, name="", metadata={"name": "", "generateName": "x-"}),
            SHARDS,
            AnswerOutcome.LEFT_TO_PLACEMENT,
        ),
    ],
    ids=["no shard is available", "no name yet"],
)
def test_a_copied_label_goes_where_nobody_can_tell_the_shard_yet(
    asked: Request, membership: Membership, outcome: AnswerOutcome
) -> None:
    """Unassigned it is placed at once when that can be told; with another's label by the next resync only."""
    assert planned(asked, membership) == Answer([{"op": "remove", "path": POINTER}], outcome)


def test_a_replica_that_is_behind_leaves_a_copied_label() -> None:
    assert planned(request(new={SHARD: "gone"}), stale=True) == Answer(None, AnswerOutcome.STALE)
