"""What the webhook answers, request by request."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from sharder.core.admission import (
    Answer,
    AnswerOutcome,
    NeedOwner,
    Request,
    Review,
    Unreadable,
    conclude,
    parse_review,
    plan,
    render_response,
    unanswered,
)
from sharder.core.hashring import HashRing
from sharder.core.membership import Membership
from sharder.core.ringspec import ResolvedMain, ResolvedRing, parse_ring
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import ObjectMeta, PartialObject, Resource

LABELS = parse_ring_name("example")
SHARD, DRAIN = LABELS.shard, LABELS.drain
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
RING = ResolvedRing(
    parse_ring({"metadata": {"name": "example"}}),
    (ResolvedMain(SECRETS, (CONFIGMAPS,)), ResolvedMain(DEPLOYMENTS), ResolvedMain(NAMESPACES)),
)
SHARDS = Membership(
    available=frozenset({"a", "b", "c"}), ready=frozenset({"a", "b", "c"}), ring=HashRing({"a", "b", "c"})
)
EMPTY = Membership()


def request(
    resource: Resource = SECRETS,
    operation: str = "CREATE",
    new: dict[str, str] | None = None,
    old: dict[str, str] | None = None,
    *,
    metadata: dict[str, Any] | None = None,
    **more: Any,
) -> Request:
    """A request about object `x` in namespace `n`; `new` and `old` are its labels."""
    meta = {"name": "x", "namespace": "n", **(metadata or {})}
    raw = {
        "uid": "1",
        "operation": operation,
        "namespace": "n",
        "name": "x",
        "resource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
        "object": {"metadata": {**meta, "labels": new}},
        "oldObject": {"metadata": {**meta, "labels": old}} if operation == "UPDATE" else None,
        **more,
    }
    return msgspec.convert(raw, Request)


def child(kind: str = "Secret", *, metadata: dict[str, Any] | None = None, **more: Any) -> Request:
    reference = {"apiVersion": "v1", "kind": kind, "name": "owner", "uid": "owner-uid", "controller": True}
    return request(CONFIGMAPS, metadata={"ownerReferences": [reference], **(metadata or {})}, **more)


def owner(label: str | None, uid: str = "owner-uid") -> PartialObject:
    return PartialObject(ObjectMeta(name="owner", namespace="n", uid=uid, labels={SHARD: label} if label else None))


def planned(asked: Request, membership: Membership = SHARDS, *, stale: bool = False) -> Answer:
    answer = plan(asked, RING, membership, stale=stale, body=msgspec.json.encode({"request": asked}))
    assert isinstance(answer, Answer)
    return answer


def concluded(asked: Request, found: PartialObject | None, membership: Membership = SHARDS) -> Answer:
    need = plan(asked, RING, membership)
    assert isinstance(need, NeedOwner)
    return conclude(need, found, RING, membership)


def test_a_new_main_object_gets_the_rings_answer() -> None:
    answer = planned(request())
    assert answer.outcome is AnswerOutcome.ASSIGNED
    assert answer.shard == SHARDS.target("/Secret/n/x")
    assert answer.patch == [{"op": "add", "path": "/metadata/labels", "value": {SHARD: answer.shard}}]


def test_of_a_ring_by_ranges_no_object_is_labelled_by_a_configuration_that_is_left_over() -> None:
    spec = {"assignment": "Ranges", "hashBy": "Namespace"}
    ranged = ResolvedRing(parse_ring({"metadata": {"name": "example"}, "spec": spec}), RING.mains)
    assert plan(request(), ranged, SHARDS) == Answer(None, AnswerOutcome.NOT_OURS)


def test_a_cluster_scoped_object_is_placed_without_namespace() -> None:
    # For a Namespace, the request says its own name as its namespace.
    answer = planned(request(NAMESPACES, namespace="x", metadata={"namespace": ""}))
    assert answer.shard == SHARDS.target("/Namespace//x")


def test_the_namespace_is_the_requests_where_the_object_does_not_say() -> None:
    assert planned(request(metadata={"namespace": ""})).shard == SHARDS.target("/Secret/n/x")


@pytest.mark.parametrize("resource", [SECRETS, DEPLOYMENTS])
def test_a_main_object_without_a_name_yet_is_left_to_placement(resource: Resource) -> None:
    asked = request(resource, name="", metadata={"name": "", "generateName": "x-"})
    assert planned(asked) == Answer(None, AnswerOutcome.LEFT_TO_PLACEMENT)


def test_a_label_that_is_there_is_never_overwritten() -> None:
    asked = request(operation="UPDATE", new={SHARD: "mine"}, old={SHARD: "a"})
    assert planned(asked) == Answer(None, AnswerOutcome.ALREADY_LABELLED)
    made = child(new={SHARD: "mine"})
    assert planned(made) == Answer(None, AnswerOutcome.ALREADY_LABELLED), "shards label what they make"


def test_a_drain_label_on_a_new_object_is_cleared_with_its_placement() -> None:
    patch = planned(request(new={DRAIN: "true"})).patch
    assert patch is not None
    assert [operation["op"] for operation in patch] == ["add", "remove"]


@pytest.mark.parametrize("resource", [SECRETS, CONFIGMAPS, DEPLOYMENTS])
@pytest.mark.parametrize("shard", ["a", "long-gone", ""])
@pytest.mark.parametrize("membership", [SHARDS, EMPTY], ids=["shards", "no shards"])
@pytest.mark.parametrize("stale", [False, True])
def test_a_label_removed_without_drain_is_put_back_whatever_the_shards_state(
    resource: Resource, shard: str, membership: Membership, stale: bool
) -> None:
    answer = planned(request(resource, "UPDATE", {"app": "x"}, {"app": "x", SHARD: shard}), membership, stale=stale)
    assert (answer.outcome, answer.shard) == (AnswerOutcome.RESTORED, shard)
    assert answer.patch is not None
    assert [(operation["op"], operation["value"]) for operation in answer.patch] == [("add", shard)]


def test_a_label_removed_alone_from_a_draining_object_is_put_back_and_it_still_drains() -> None:
    answer = planned(request(DEPLOYMENTS, "UPDATE", {DRAIN: "true"}, {SHARD: "a", DRAIN: "true"}))
    assert answer.outcome is AnswerOutcome.NOT_ACKNOWLEDGED
    assert answer.patch is not None
    assert len(answer.patch) == 1


@pytest.mark.parametrize("more", [{DRAIN: "true"}, {"app": "y"}])
def test_who_meant_to_acknowledge_is_warned_and_nobody_else(more: dict[str, str]) -> None:
    wrong = planned(request(DEPLOYMENTS, "UPDATE", more, {SHARD: "a", DRAIN: "true"}, metadata={"uid": "u"}))
    assert (wrong.outcome, wrong.shard) == (AnswerOutcome.NOT_ACKNOWLEDGED, "a")
    assert "ring example: labels were put back" in str(wrong.warning)
    right = planned(request(DEPLOYMENTS, "UPDATE", None, {SHARD: "a", DRAIN: "true"}, metadata={"uid": "u"}))
    by_hand = planned(request(DEPLOYMENTS, "UPDATE", more, {SHARD: "a"}, metadata={"uid": "u"}))
    assert (right.warning, by_hand.warning) == (None, None)


def test_a_warning_is_no_longer_than_api_servers_let_it_be() -> None:
    name = "r" * 63
    spec = parse_ring({"metadata": {"name": name}})
    asked = request(DEPLOYMENTS, "UPDATE", {}, {spec.labels.shard: "a", spec.labels.drain: "true"})
    answer = plan(asked, ResolvedRing(spec, RING.mains), SHARDS)
    assert isinstance(answer, Answer)
    assert name in str(answer.warning)
    assert len(str(answer.warning)) <= 256
    rendered = json.loads(render_response("1", "admission.k8s.io/v1", answer))
    assert rendered["response"]["warnings"] == [answer.warning]
    assert rendered["response"]["allowed"] is True


def test_a_label_swapped_for_a_drain_is_put_back() -> None:
    answer = planned(request(DEPLOYMENTS, "UPDATE", {DRAIN: "true"}, {SHARD: "a"}))
    assert (answer.outcome, answer.shard) == (AnswerOutcome.RESTORED, "a")


def test_an_object_replaced_while_it_drains_keeps_its_shard_and_drains_on() -> None:
    replaced = {"metadata": {"name": "x", "namespace": "n", "labels": {"app": "x"}, "annotations": {"a": "b"}}}
    asked = request(DEPLOYMENTS, "UPDATE", old={SHARD: "a", DRAIN: "yes"}, metadata={"uid": "1"}, object=replaced)
    answer = planned(asked)
    assert (answer.outcome, answer.shard, answer.warning) == (AnswerOutcome.RESTORED, "a", None)
    assert answer.patch is not None
    assert [operation["value"] for operation in answer.patch] == ["a", "yes"]


def test_an_acknowledgement_is_answered_with_the_new_shard() -> None:
    answer = planned(request(DEPLOYMENTS, "UPDATE", None, {SHARD: "a", DRAIN: "true"}))
    assert (answer.outcome, answer.shard) == (AnswerOutcome.ASSIGNED, SHARDS.target("apps/Deployment/n/x"))


def test_an_unassigned_object_is_placed_by_anyones_write() -> None:
    assert planned(request(DEPLOYMENTS, "UPDATE")).outcome is AnswerOutcome.ASSIGNED


@pytest.mark.parametrize("old", [None, {SHARD: "a", DRAIN: "true"}], ids=["any write", "acknowledgement"])
def test_an_owner_with_controlled_resources_is_placed_on_create_only(old: dict[str, str] | None) -> None:
    assert planned(request(operation="UPDATE", old=old)) == Answer(None, AnswerOutcome.LEFT_TO_PLACEMENT)


def test_a_replica_that_is_behind_assigns_nothing() -> None:
    assert planned(request(), stale=True) == Answer(None, AnswerOutcome.STALE)
    assert planned(child(), stale=True) == Answer(None, AnswerOutcome.STALE)


def test_without_shards_the_object_waits_unassigned() -> None:
    assert planned(request(), EMPTY) == Answer(None, AnswerOutcome.NO_SHARD)
    assert concluded(child(), None, EMPTY) == Answer(None, AnswerOutcome.NO_SHARD)


def test_a_child_asks_for_its_owner() -> None:
    asked = child()
    assert plan(asked, RING, SHARDS) == NeedOwner(SECRETS, "n", "owner", "owner-uid", asked, "/Secret/n/owner")


def test_a_child_with_generate_name_is_placed_like_any_other() -> None:
    asked = child(name="", metadata={"name": "", "generateName": "x-"})
    assert concluded(asked, owner("b")).shard == "b"


def test_a_child_gets_its_owners_shard_not_the_rings() -> None:
    other = next(name for name in sorted(SHARDS.available) if name != SHARDS.target("/Secret/n/owner"))
    answer = concluded(child(), owner(other))
    assert (answer.outcome, answer.shard) == (AnswerOutcome.ASSIGNED, other)


@pytest.mark.parametrize("label", [None, "gone"])
def test_while_the_owner_is_unassigned_or_stranded_the_child_waits(label: str | None) -> None:
    assert concluded(child(), owner(label)) == Answer(None, AnswerOutcome.OWNER_UNASSIGNED)


@pytest.mark.parametrize("found", [None, owner("b", uid="another")], ids=["gone", "another of its name"])
def test_without_an_owner_the_hash_serves(found: PartialObject | None) -> None:
    assert concluded(child(), found).shard == SHARDS.target("/Secret/n/owner")


@pytest.mark.parametrize(
    "asked",
    [
        request(CONFIGMAPS),
        child("Deployment"),
        request(Resource("", "v1", "pods", "Pod")),
        request(operation="DELETE"),
        request(operation="CONNECT"),
        request(operation=""),
        request(subResource="status"),
    ],
    ids=["no controller", "other kind", "other resource", "delete", "connect", "no operation", "subresource"],
)
def test_what_is_not_ours_passes(asked: Request) -> None:
    assert planned(asked) == Answer(None, AnswerOutcome.NOT_OURS)


@pytest.mark.parametrize("body", [None, {}, {"metadata": None}])
def test_an_object_without_metadata_passes(body: Any) -> None:
    assert planned(request(object=body)) == Answer(None, AnswerOutcome.MALFORMED)


def test_a_dry_run_is_answered_alike_and_marked() -> None:
    wet, dry = planned(request()), planned(request(dryRun=True))
    assert dry.patch == wet.patch
    assert dry.dry_run
    assert not wet.dry_run
    assert concluded(child(dryRun=True), owner("a")).dry_run
    assert unanswered(request(dryRun=True), AnswerOutcome.STALE).dry_run


def test_the_response_allows_and_carries_the_patch() -> None:
    answer = planned(request())
    rendered = json.loads(render_response("1", "admission.k8s.io/v1", answer))
    response = rendered.pop("response")
    assert rendered == {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    assert json.loads(b64decode(response.pop("patch"))) == answer.patch
    assert response == {"uid": "1", "allowed": True, "patchType": "JSONPatch"}


def test_a_response_without_patch_only_allows() -> None:
    rendered = json.loads(render_response("1", "admission.k8s.io/v1", Answer(None, AnswerOutcome.NO_SHARD)))
    assert rendered["response"] == {"uid": "1", "allowed": True}


def test_a_review_is_read() -> None:
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "extra": [{}]}}
    review = parse_review(json.dumps(body).encode())
    assert isinstance(review, Review)
    assert review.request.uid == "1"


@pytest.mark.parametrize(
    ("body", "uid"),
    [
        (b'{"request": {"uid": "1", "operation": 5}}', "1"),
        (b'{"request": {"uid": "1", "object": {"metadata": {"labels": {"a": 1}}}}}', "1"),
        (b'{"apiVersion": null, "request": {"uid": "1"}}', "1"),
        (b'{"request": {"uid": 1}}', None),
        (b'{"request": {"uid": ""}}', None),
        (b'{"request": {"uid": "' + b"x" * 257 + b'"}}', None),
        (b'{"request": {}}', None),
        (b'{"request": null}', None),
        (b"{}", None),
        (b"[]", None),
        (b"", None),
        (b"\xff\xfe", None),
        (b'{"request": {"uid": "1"', None),
        (b"[" * 100_000, None),
        (b'{"request": {"uid": "1", "object": ' + b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_000 + b"}}", None),
    ],
)
def test_from_a_malformed_review_the_uid_is_saved_where_it_can_be_read(body: bytes, uid: str | None) -> None:
    found = parse_review(body)
    assert isinstance(found, Unreadable)
    assert found.uid == uid
    assert found.api_version == "admission.k8s.io/v1"
    assert found.message


SHARDER = "system:serviceaccount:sharding-system:sharder"


def relabelled(
    old: dict[str, str],
    new: dict[str, str],
    *,
    resource: Resource = SECRETS,
    by: str = "somebody",
    account: str = SHARDER,
    stale: bool = False,
    membership: Membership = SHARDS,
) -> Answer | NeedOwner:
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "owner-uid", "controller": True}
    metadata = {"ownerReferences": [reference]} if resource is CONFIGMAPS else {}
    asked = request(resource, "UPDATE", new, old, metadata=metadata, userInfo={"username": by})
    return plan(asked, RING, membership, stale=stale, account=account)


@pytest.mark.parametrize("resource", [SECRETS, DEPLOYMENTS, NAMESPACES])
@pytest.mark.parametrize("other", ["b", "no-shard", ""])
def test_a_main_object_taken_from_a_living_shard_by_hand_is_put_back(resource: Resource, other: str) -> None:
    answer = relabelled({SHARD: "a"}, {SHARD: other, "app": "x"}, resource=resource)
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.shard) == (AnswerOutcome.RESTORED, "a")
    assert answer.patch is not None
    assert [(each["op"], each["value"]) for each in answer.patch] == [("add", "a")]


def test_a_draining_object_that_is_given_away_by_hand_drains_on() -> None:
    answer = relabelled({SHARD: "a", DRAIN: "true"}, {SHARD: "b"})
    assert isinstance(answer, Answer)
    assert answer.patch is not None
    assert [each["value"] for each in answer.patch] == ["a", "true"]


@pytest.mark.parametrize(
    "passes",
    [
        {"by": SHARDER},
        {"account": ""},
        {"stale": True},
        {"membership": EMPTY},
        {"old": {SHARD: "gone"}},
        {"old": {}},
        {"old": {SHARD: "b"}},
    ],
    ids=["the sharder", "account unknown", "stale", "no shard", "from a dead shard", "from nobody", "unchanged"],
)
@pytest.mark.parametrize("resource", [SECRETS, CONFIGMAPS])
def test_a_label_that_may_change_passes(resource: Resource, passes: dict[str, Any]) -> None:
    answer = relabelled(**{"old": {SHARD: "a"}, "new": {SHARD: "b"}, "resource": resource, **passes})
    assert answer == Answer(None, AnswerOutcome.ALREADY_LABELLED)


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (owner("a"), AnswerOutcome.RESTORED),
        (owner("b"), AnswerOutcome.ALREADY_LABELLED),
        (owner(None), AnswerOutcome.ALREADY_LABELLED),
        (owner("a", uid="another"), AnswerOutcome.ALREADY_LABELLED),
        (None, AnswerOutcome.ALREADY_LABELLED),
    ],
    ids=["taken from its owner", "given to its owner", "owner unassigned", "another of its name", "no owner"],
)
def test_a_child_is_put_back_where_its_owner_is(found: PartialObject | None, outcome: AnswerOutcome) -> None:
    need = relabelled({SHARD: "a"}, {SHARD: "b"}, resource=CONFIGMAPS)
    assert isinstance(need, NeedOwner)
    answer = conclude(need, found, RING, SHARDS)
    assert answer.outcome is outcome
    restored = [{"op": "add", "path": "/metadata/labels/" + SHARD.replace("/", "~1"), "value": "a"}]
    assert answer.patch == (restored if outcome is AnswerOutcome.RESTORED else None)
