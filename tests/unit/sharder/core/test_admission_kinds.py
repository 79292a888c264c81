"""A resource that was taken away and made again as something else, in the eyes of the webhook."""

from __future__ import annotations

import pytest

from sharder.core.admission import Answer, AnswerOutcome, Request, plan
from tests.unit.sharder.core.test_admission import DEPLOYMENTS, NAMESPACES, RING, SHARD, SHARDS, planned, request


@pytest.mark.parametrize(
    "remade",
    [
        request(kind={"kind": "Another"}),
        request(namespace="", metadata={"namespace": ""}),
        request(NAMESPACES),
        request(new={SHARD: "a"}, kind={"kind": "Another"}),
    ],
    ids=["kind", "cluster-scoped", "namespaced", "copied labels"],
)
def test_an_object_of_what_a_resource_has_become_is_not_placed_by_what_it_was(remade: Request) -> None:
    """Its key is another one: kind and scope are part of it."""
    answer = planned(remade)
    assert answer.outcome is AnswerOutcome.ANOTHER_KIND
    assert answer.shard is None
    remade_labels = remade.object.metadata.labels if remade.object and remade.object.metadata else None
    assert bool(answer.patch) is bool(remade_labels), "another object's"


def test_the_kind_that_a_ring_knows_is_no_other() -> None:
    assert planned(request(kind={"kind": "Secret"})).outcome is AnswerOutcome.ASSIGNED


@pytest.mark.parametrize("new", [{SHARD: "b"}, {}], ids=["changed", "removed"])
def test_a_label_that_a_write_of_the_status_takes_from_a_living_shard_is_put_back(new: dict[str, str]) -> None:
    """Of most built-in kinds it can."""
    asked = request(operation="UPDATE", new=new, old={SHARD: "a"}, subResource="status")
    answer = plan(asked, RING, SHARDS, account="the sharder's")
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.shard) == (AnswerOutcome.RESTORED, "a")


@pytest.mark.parametrize("subresource", ["status", "scale", "finalize"])
def test_a_write_of_a_subresource_places_nothing(subresource: str) -> None:
    assert planned(request(DEPLOYMENTS, "UPDATE", subResource=subresource)).outcome is AnswerOutcome.NOT_OURS
