"""Admission never denies: whatever is posted, the answer allows it, and its patch touches two labels only."""

from __future__ import annotations

import copy
import json
from base64 import b64decode
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sharder.core.admission import Answer, NeedOwner, Unreadable, conclude, parse_review, plan, render_response
from sharder.core.hashring import HashRing
from sharder.core.membership import Membership
from sharder.core.ringspec import ResolvedMain, ResolvedRing, parse_ring
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import ObjectMeta, PartialObject, Resource

LABELS = parse_ring_name("example")
RING = ResolvedRing(
    parse_ring({"metadata": {"name": "example"}}),
    (
        ResolvedMain(Resource("", "v1", "secrets", "Secret"), (Resource("", "v1", "configmaps", "ConfigMap"),)),
        ResolvedMain(Resource("apps", "v1", "deployments", "Deployment")),
    ),
)
NAMES = frozenset({"a", "b"})
MEMBERSHIPS = (Membership(available=NAMES, ready=NAMES, ring=HashRing(NAMES)), Membership())
OWNERS = (None, *(PartialObject(ObjectMeta(uid="u", labels={LABELS.shard: name})) for name in ("a", "gone")))

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


labels = st.dictionaries(
    st.sampled_from(["app", LABELS.shard, LABELS.drain]), st.sampled_from(["a", "b", "gone", "", "true"])
)
references = st.lists(
    st.fixed_dictionaries(
        {
            "apiVersion": st.sampled_from(["v1", "v1", "apps/v1"]),
            "kind": st.sampled_from(["Secret", "Secret", "Deployment"]),
            "name": st.sampled_from(["x", "x", ""]),
            "uid": st.just("u"),
            "controller": st.sampled_from([True, True, False]),
        }
    ),
    max_size=2,
)
metadata = st.fixed_dictionaries(
    {"name": st.sampled_from(["x", "x", ""]), "namespace": st.sampled_from(["n", ""]), "ownerReferences": references},
    optional={"labels": st.none() | labels},
)
objects = st.fixed_dictionaries({"metadata": metadata}, optional={"spec": anything})
resources = st.sampled_from(
    [
        {"group": "", "version": "v1", "resource": "secrets"},
        {"group": "", "version": "v1", "resource": "configmaps"},
        {"group": "apps", "version": "v1", "resource": "deployments"},
    ]
)
creations = st.fixed_dictionaries(
    {"uid": st.just("1"), "operation": st.just("CREATE"), "resource": resources, "object": objects},
    optional={"namespace": st.just("n"), "dryRun": st.booleans(), "oldObject": st.none(), "subResource": st.just("")},
)
updates = st.fixed_dictionaries(
    {
        "uid": st.just("1"),
        "operation": st.just("UPDATE"),
        "resource": resources,
        "object": objects,
        "oldObject": objects,
        "namespace": st.just("n"),
    },
)
requests = creations | updates


@st.composite
def corrupted(draw: st.DrawFn) -> Any:
    """A request in which one field, however deep, is anything."""
    # Examples share what `sampled_from` gives; to change that would change the next example.
    request = copy.deepcopy(draw(requests))
    node: Any = request
    while True:
        key = draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        inner = node[key]
        if not (isinstance(inner, dict | list) and inner and draw(st.booleans())):
            node[key] = draw(anything)
            return request
        node = inner


bodies = st.one_of(
    requests.map(lambda request: json.dumps({"request": request}).encode()),
    requests.map(lambda request: json.dumps({"request": request}).encode()),
    corrupted().map(lambda request: json.dumps({"request": request}).encode()),
    anything.map(lambda body: json.dumps(body).encode()),
    st.binary(max_size=50),
)


def answer_to(body: bytes, membership: Membership, owner: PartialObject | None, stale: bool) -> dict[str, Any] | None:
    review = parse_review(body)
    if isinstance(review, Unreadable):
        return None
    answer = plan(review.request, RING, membership, stale=stale, body=body)
    if isinstance(answer, NeedOwner):
        answer = conclude(answer, owner, RING, membership)
    assert isinstance(answer, Answer)
    rendered: dict[str, Any] = json.loads(render_response(review.request.uid, review.api_version, answer))
    return rendered


def applied(patch: list[dict[str, Any]], before: dict[str, Any]) -> dict[str, Any]:
    """Labels after the patch; a dumb JSON patch that knows just what is expected."""
    after = dict(before)
    for operation in patch:
        if operation["path"] == "/metadata/labels":
            assert before == {}
            after = dict(operation["value"])
            continue
        prefix, _, pointer = operation["path"].rpartition("/")
        assert prefix == "/metadata/labels"
        label = pointer.replace("~1", "/").replace("~0", "~")
        if operation["op"] == "remove":
            del after[label]
        else:
            after[label] = operation["value"]
    return after


@given(bodies, st.sampled_from(MEMBERSHIPS), st.sampled_from(OWNERS), st.booleans())
@settings(max_examples=600)
def test_every_body_is_allowed_and_only_unlabelled_or_new_objects_are_labelled(
    body: bytes, membership: Membership, owner: PartialObject | None, stale: bool
) -> None:
    rendered = answer_to(body, membership, owner, stale)
    if rendered is None:
        return
    response = rendered["response"]
    assert response["allowed"] is True
    if "patch" not in response:
        return
    request = json.loads(body)["request"]
    before = request["object"]["metadata"].get("labels") or {}
    assert request["operation"] in ("CREATE", "UPDATE")
    after = applied(json.loads(b64decode(response["patch"])), before)
    new_main = request["operation"] == "CREATE" and request["resource"]["resource"] != "configmaps"
    assert LABELS.shard not in before or new_main
    old = ((request.get("oldObject") or {}).get("metadata") or {}).get("labels") or {}
    possible = set(membership.available) | ({old[LABELS.shard]} if LABELS.shard in old else set())
    given = after.pop(LABELS.shard, None)
    assert given in possible or (given is None and LABELS.shard in before)
    after.pop(LABELS.drain, None)
    assert after == {key: value for key, value in before.items() if key not in (LABELS.shard, LABELS.drain)}


#: A field of no object is ever null: to the API server that is an absent one.
#: What an API server sends: JSON knows neither infinity nor half a character.
sent = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "é"]), inner, max_size=3),
)  # fmt: skip
fields = st.dictionaries(st.sampled_from(["spec", "status", "data"]), sent.filter(lambda it: it is not None))
draining = st.builds(
    lambda rest, shard, more: {
        "metadata": {"name": "x", "uid": "u", "labels": {**more, LABELS.shard: shard, LABELS.drain: "true"}},
        **rest,
    },
    fields,
    st.sampled_from(["a", "b", "gone"]),
    st.dictionaries(st.sampled_from(["app", "team"]), st.sampled_from(["x", "y"])),
)


@given(draining, fields, st.dictionaries(st.sampled_from(["app", "team"]), st.sampled_from(["x", "y"])), st.booleans())
def test_both_labels_go_from_a_draining_object_only_where_nothing_else_changes(
    old: dict[str, Any], rest: dict[str, Any], left: dict[str, str], untouched: bool
) -> None:
    worn = {key: value for key, value in old["metadata"]["labels"].items() if key not in (LABELS.shard, LABELS.drain)}
    if untouched:
        rest, left = {key: value for key, value in old.items() if key != "metadata"}, worn
    new = {"metadata": {**old["metadata"], "labels": left}, **rest}
    alike = left == worn and {**rest, "metadata": 0} == {**old, "metadata": 0}
    request = {"uid": "1", "operation": "UPDATE", "resource": {"group": "apps", "resource": "deployments"}}
    body = json.dumps({"request": {**request, "namespace": "n", "object": new, "oldObject": old}}).encode()
    rendered = answer_to(body, MEMBERSHIPS[0], None, False)
    assert rendered is not None
    after = applied(json.loads(b64decode(rendered["response"]["patch"])), left)
    both = {LABELS.shard: old["metadata"]["labels"][LABELS.shard], LABELS.drain: "true"}
    if alike:
        assert after == {**left, LABELS.shard: after[LABELS.shard]}
        assert after[LABELS.shard] in NAMES
    else:
        assert after == {**left, **both}


@given(st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5))
def test_a_lone_surrogate_or_any_other_oddity_in_a_name_does_not_break_the_answer(odd: Any) -> None:
    for name in ("\ud800", odd):
        request = {"uid": "1", "operation": "CREATE", "resource": {"group": "", "resource": "secrets"}}
        body = json.dumps({"request": {**request, "object": {"metadata": {"name": name, "namespace": "n"}}}}).encode()
        rendered = answer_to(body, MEMBERSHIPS[0], None, False)
        assert rendered is None or rendered["response"]["allowed"] is True
