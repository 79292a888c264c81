"""A resource that was taken away and made again as something else, in the eyes of the webhook."""

from __future__ import annotations

import pytest

from sharder.core.admission import AnswerOutcome, Request
from tests.unit.sharder.core.test_admission import NAMESPACES, SHARD, planned, request


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
