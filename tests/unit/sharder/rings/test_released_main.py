"""What a shard that is gone had as main, and nothing in the ring controls, is released, and the webhook lets it be."""

from __future__ import annotations

import msgspec
import pytest

from sharder.core.admission import AnswerOutcome, NeedOwner, Review, parse_review, plan
from sharder.core.views import RingView
from sharder.replica import Replica
from sharder.rings.status import REFUSED
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.testing.memory import Object
from shardsdk.testing.patching import apply_json_patch
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    LABELS,
    OWNERS,
    RING,
    Stage,
    leading,
    make_stage,
    ring,
    thing,
)
from tests.unit.sharder.rings.edited import FAMILY, OTHERS

#: In scope, controlled, and by nothing in the ring: of such an object the API server asks the webhook.
FOREIGN = "of-somebody-else"


def prepare(clock: VirtualClock) -> Stage:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE, OTHERS), "one")
    foreign = thing(FOREIGN, shard="one")
    reference = {"apiVersion": "example.com/v1", "kind": "Certificate", "name": "c", "uid": "u-c", "controller": True}
    foreign["metadata"]["ownerReferences"] = [reference]
    stage.create(CHILDREN, foreign)
    return stage


def ask_webhook(stage: Stage, replica: Replica) -> list[AnswerOutcome]:
    """Have the webhook asked about what loses the shard label, as its match conditions have it; its answers."""
    answers: list[AnswerOutcome] = []

    def admit(verb: str, resource: Resource, old: Object | None, new: Object) -> Object:
        if verb != "UPDATE" or resource != CHILDREN or LABELS.shard in (new["metadata"].get("labels") or {}):
            return new
        named = {"group": resource.group, "version": resource.version, "resource": resource.plural}
        request = {"uid": "1", "operation": verb, "namespace": "default", "resource": named}
        body = msgspec.json.encode({"request": {**request, "object": new, "oldObject": old}})
        review, view = parse_review(body), replica.cache.view(RING)
        assert isinstance(review, Review)
        assert isinstance(view, RingView)
        answer = plan(review.request, view.resolved, view.membership, stale=view.stale, body=body)
        assert not isinstance(answer, NeedOwner)
        answers.append(answer.outcome)
        return apply_json_patch(new, answer.patch or [])

    stage.server.admit = admit
    return answers


async def edit_without_shards(stage: Stage) -> None:
    """Have the ring list as controlled what it listed as main, while no shard runs; then start another."""
    await stage.until(lambda: stage.condition("Settled") == "True")
    stage.release("one")
    await stage.pass_time(60)
    stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": [FAMILY]}})
    await stage.pass_time(10)
    stage.start("two", mains=[OWNERS.group_resource])


@in_virtual_time
async def test_the_webhook_does_not_put_back_what_the_sharder_releases(clock: VirtualClock) -> None:
    """Also where nobody has told it which account is the sharder's."""
    stage = prepare(clock)
    async with leading(stage) as replica:
        answers = ask_webhook(stage, replica)
        await edit_without_shards(stage)
        await stage.until(lambda: stage.label(CHILDREN, FOREIGN) is None)
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert not stage.draining(CHILDREN, FOREIGN)
        assert answers == [AnswerOutcome.NOT_OURS]
        await stage.until(lambda: stage.holder("one") is None)


@pytest.mark.parametrize("insists", ["on every label", "on the shard's alone"])
@in_virtual_time
async def test_what_admission_puts_back_is_refused_and_told(
    clock: VirtualClock, insists: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = prepare(clock)
    undone: list[float] = []

    def insist(verb: str, resource: Resource, old: Object | None, new: Object) -> Object:
        labels = new["metadata"].get("labels") or {}
        if old is not None and resource == CHILDREN and LABELS.shard not in labels:
            undone.append(clock.monotonic())
            before = old["metadata"]["labels"]
            kept = before if insists == "on every label" else {**labels, LABELS.shard: before[LABELS.shard]}
            new["metadata"]["labels"] = dict(kept)
        return new

    stage.server.admit = insist
    async with leading(stage):
        await edit_without_shards(stage)
        await stage.until(lambda: bool(stage.events.of(REFUSED)))
        assert f"configmaps default/{FOREIGN} cannot be released from shard one: " in stage.events.of(REFUSED)[0]
        assert "an admission webhook puts them back" in stage.events.of(REFUSED)[0]
        await stage.pass_time(300)
        assert stage.said("Settled")["reason"] == "Refused"
        assert stage.condition("DrainsAcknowledged") == "True", "nobody is there who could acknowledge"
        assert len([each for each in undone if each > clock.monotonic() - 60]) < 10
        assert stage.holder("one") == "", "nobody keeps a lease for what does not move"
        stage.server.admit = lambda verb, resource, old, new: new
        await stage.until(lambda: stage.label(CHILDREN, FOREIGN) is None, seconds=180)
