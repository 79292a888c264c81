"""Rings: read whole or refused whole, with everything that is wrong."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharder.core.ringspec import (
    InvalidRing,
    ResolvedRing,
    Role,
    as_shards_know,
    default_namespaces,
    parse_ring,
    resolve,
    unsuited,
)
from sharder.core.selectors import LabelSelector
from shardsdk.protocol.objects import GroupResource, Resource

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SERVED = {each.group_resource: each for each in (SECRETS, CONFIGMAPS, DEPLOYMENTS)}


def ring(resources: Any, name: str = "example", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": "u", "generation": 3}, "spec": {"resources": resources, **spec}}


def problems_of(raw: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidRing) as caught:
        parse_ring(raw)
    assert all(problem.message and problem.remedy for problem in caught.value.problems)
    return [problem.path for problem in caught.value.problems]


TWO_MAINS = [
    {"group": "", "resource": "secrets", "controlledResources": [{"resource": "configmaps"}]},
    {"group": "apps", "resource": "deployments"},
]


def test_a_ring_is_read_whole() -> None:
    spec = parse_ring(ring(TWO_MAINS))
    assert (spec.name, spec.uid, spec.generation) == ("example", "u", 3)
    assert [str(main.resource) for main in spec.resources] == ["secrets", "deployments.apps"]
    assert spec.resources[0].controlled == (GroupResource("", "configmaps"),)
    assert spec.namespace_selector is None
    assert spec.watch_unassigned_controlled


def test_a_ring_without_resources_is_a_ring() -> None:
    assert parse_ring({"metadata": {"name": "empty"}}).resources == ()
    assert parse_ring({"metadata": {"name": "empty"}, "spec": {"resources": None}}).resources == ()


def test_optional_fields_are_read() -> None:
    spec = parse_ring(ring([], namespaceSelector={"matchLabels": {"a": "b"}}, watchUnassignedControlled=False))
    assert spec.namespace_selector == LabelSelector((("a", "b"),))
    assert not spec.watch_unassigned_controlled


@pytest.mark.parametrize(
    ("resources", "paths"),
    [
        ("secrets", ["spec.resources"]),
        (["secrets"], ["spec.resources[0]"]),
        ([{"group": ""}], ["spec.resources[0].resource"]),
        ([{"resource": "Secrets"}], ["spec.resources[0].resource"]),
        ([{"resource": "*"}], ["spec.resources[0].resource"]),
        ([{"resource": "pods/status"}], ["spec.resources[0].resource"]),
        ([{"resource": "s" * 64}], ["spec.resources[0].resource"]),
        ([{"group": "apps/v1", "resource": "deployments"}], ["spec.resources[0].group"]),
        ([{"group": 1, "resource": "deployments"}], ["spec.resources[0].group"]),
        ([{"group": "*", "resource": "*"}], ["spec.resources[0].group", "spec.resources[0].resource"]),
        ([{"resource": "secrets"}, {"resource": "secrets"}], ["spec.resources[1]"]),
        (
            [{"resource": "secrets", "controlledResources": [{"resource": "secrets"}]}],
            ["spec.resources[0].controlledResources"],
        ),
        (
            [{"resource": "secrets", "controlledResources": [{"resource": "configmaps"}]}, {"resource": "configmaps"}],
            ["spec.resources[0].controlledResources"],
        ),
        (
            [
                {"resource": "secrets", "controlledResources": [{"resource": "pods"}]},
                {"resource": "jobs", "controlledResources": [{"resource": "pods"}]},
            ],
            ["spec.resources[1].controlledResources"],
        ),
        ([{"resource": "secrets", "controlledResources": "x"}], ["spec.resources[0].controlledResources"]),
        ([{"resource": "secrets", "controlledResources": [{}]}], ["spec.resources[0].controlledResources[0].resource"]),
        ([{"resource": f"r{index}"} for index in range(33)], ["spec.resources"]),
        (
            [{"resource": "a", "controlledResources": [{"resource": f"r{index}"} for index in range(17)]}],
            ["spec.resources[0].controlledResources"],
        ),
    ],
)
def test_a_bad_resource_is_told_with_its_path(resources: Any, paths: list[str]) -> None:
    assert problems_of(ring(resources)) == paths


@pytest.mark.parametrize(
    "resources",
    [
        [{"resource": "events"}, {"group": "events.k8s.io", "resource": "events"}],
        [{"group": "events.k8s.io", "resource": "events", "controlledResources": [{"resource": "events"}]}],
    ],
)
def test_what_is_kept_once_and_served_twice_is_listed_once(resources: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidRing, match="are the same objects as"):
        parse_ring(ring(resources))
    one = {"group": "events.k8s.io", "resource": "events"}
    assert [main.resource for main in parse_ring(ring([one])).resources] == [GroupResource("events.k8s.io", "events")]


def test_everything_wrong_is_told_at_once() -> None:
    raw = ring([{"resource": "*"}], name="x" * 64, namespaceSelector=1, watchUnassignedControlled="no")
    assert problems_of(raw) == [
        "metadata.name",
        "spec.resources[0].resource",
        "spec.namespaceSelector",
        "spec.watchUnassignedControlled",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "name",
                    "resources",
                    "group",
                    "resource",
                    "controlledResources",
                    "namespaceSelector",
                    "matchLabels",
                    "matchExpressions",
                    "key",
                    "operator",
                    "values",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec"]), JSON))
def test_any_json_is_a_ring_or_is_refused_as_one(raw: dict[str, Any]) -> None:
    with suppress(InvalidRing):
        parse_ring(raw)


def test_a_resource_that_is_not_served_is_left_out_and_named() -> None:
    known, missing = resolve(parse_ring(ring(TWO_MAINS)), {**SERVED, CONFIGMAPS.group_resource: None})
    assert [main.resource for main in known.mains] == [SECRETS, DEPLOYMENTS]
    assert known.mains[0].controlled == ()
    assert missing == (GroupResource("", "configmaps"),)


def test_a_main_resource_that_is_not_served_takes_its_controlled_ones_along() -> None:
    known, missing = resolve(parse_ring(ring(TWO_MAINS)), {CONFIGMAPS.group_resource: CONFIGMAPS})
    assert known.mains == ()
    assert missing == (GroupResource("", "secrets"), GroupResource("apps", "deployments"))


REVIEWS = "subjectaccessreviews"


@pytest.mark.parametrize(
    ("spec", "verbs", "works"),
    [
        ({}, {"create"}, False),
        ({}, {"create", "get", "list", "watch"}, False),
        ({}, {"list", "watch", "patch"}, True),
        ({}, set(), True),  # nobody has said
        ({"assignment": "Ranges", "hashBy": "UID"}, {"list", "watch"}, True),
        ({"assignment": "Ranges", "hashBy": "UID"}, {"list"}, False),
    ],
)
def test_what_nobody_can_list_watch_and_label_counts_as_not_served(
    spec: dict[str, Any], verbs: set[str], works: bool
) -> None:
    group = "authorization.k8s.io"
    listed = Resource(group, "v1", REVIEWS, "SubjectAccessReview", False, frozenset(verbs))
    parsed = parse_ring(ring([{"group": group, "resource": REVIEWS}], **spec))
    known, missing = resolve(parsed, {listed.group_resource: listed})
    assert (len(known.mains), missing) == ((1, ()) if works else (0, (listed.group_resource,)))


def test_each_resource_is_found_in_its_part() -> None:
    known, _ = resolve(parse_ring(ring(TWO_MAINS)), SERVED)
    found = {str(name): known.find(name) for name in SERVED}
    assert {name: subject and subject.role for name, subject in found.items()} == {
        "secrets": Role.MAIN,
        "configmaps": Role.CONTROLLED,
        "deployments.apps": Role.MAIN,
    }
    controlled = known.find(CONFIGMAPS.group_resource)
    assert controlled is not None
    assert controlled.main.resource == SECRETS
    assert known.find(GroupResource("", "pods")) is None
    assert known.find(GroupResource("extensions", "deployments")) is None


def resolved(**spec: Any) -> ResolvedRing:
    return ResolvedRing(parse_ring(ring([], **spec)), (), default_namespaces("my-system"))


def test_a_ring_that_does_not_say_covers_all_but_the_system_namespaces() -> None:
    scope = resolved()
    assert [scope.in_scope(name) for name in ("default", "kube-system", "my-system", "sharding-system", "")] == [
        True,
        False,
        False,
        True,
        True,
    ]


def test_a_ring_that_says_covers_what_it_selects_system_namespaces_included() -> None:
    scope = resolved(namespaceSelector={"matchLabels": {"shard": "yes"}})
    assert scope.in_scope("kube-system", {"shard": "yes"})
    assert not scope.in_scope("default", {"shard": "no"})
    assert not scope.in_scope("default")
    assert scope.in_scope("")


def test_a_namespace_can_be_selected_by_name_whatever_its_labels_say() -> None:
    term = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a"]}
    scope = resolved(namespaceSelector={"matchExpressions": [term]})
    assert scope.in_scope("a", {})
    assert not scope.in_scope("b", {"kubernetes.io/metadata.name": "a"})


BY_TEAM = {"matchLabels": {"team": "a"}}
RANGES: dict[str, Any] = {"assignment": "Ranges", "hashBy": "Namespace"}


@pytest.mark.parametrize(
    "selector",
    [
        BY_TEAM,
        {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    ],
)
def test_what_shards_by_ranges_cannot_tell_by_names_is_told(selector: dict[str, Any]) -> None:
    """They would refuse to start, and those at work cannot follow."""

    def told(**spec: Any) -> str:
        return unsuited(resolve(parse_ring(ring(TWO_MAINS, namespaceSelector=selector, **spec)), SERVED)[0]) or ""

    assert told(**RANGES).startswith("spec.namespaceSelector looks at ")
    assert "; use kubernetes.io/metadata.name with In or NotIn" in told(**RANGES)
    assert told() == ""


BY_NAME = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a"]}]}


@pytest.mark.parametrize(
    ("said", "covered"),
    [(BY_NAME, ["a"]), (BY_TEAM, ["a", "b"]), (None, ["a", "b"]), ({"matchExpressions": 1}, ["a", "b"])],
)
@pytest.mark.parametrize("spec", [{"namespaceSelector": BY_TEAM}, {}])
def test_shards_by_ranges_that_cannot_tell_go_by_what_the_status_says(
    spec: dict[str, Any], said: object, covered: list[str]
) -> None:
    by_team = LabelSelector(match_labels=(("team", "a"),))
    scope = as_shards_know(resolve(parse_ring(ring(TWO_MAINS, **RANGES, **spec)), SERVED, by_team)[0], said)
    assert scope.unnamed is None
    assert [name for name in ("a", "b", "kube-system") if scope.in_scope(name)] == covered


@pytest.mark.parametrize("spec", [RANGES, RANGES | {"namespaceSelector": {}}, {"namespaceSelector": BY_TEAM}])
def test_where_shards_can_tell_the_status_says_nothing_new(spec: dict[str, Any]) -> None:
    scope = resolve(parse_ring(ring(TWO_MAINS, **spec)), SERVED)[0]
    assert as_shards_know(scope, BY_NAME) == scope


def test_a_default_that_shards_by_ranges_cannot_tell_by_names_is_told() -> None:
    by_team = LabelSelector(match_labels=(("team", "a"),))

    def told(**spec: Any) -> str:
        return unsuited(resolve(parse_ring(ring(TWO_MAINS, **spec)), SERVED, by_team)[0]) or ""

    assert "webhook.config.namespaceSelector, looks at 'team' (In)" in told(**RANGES)
    assert told(**RANGES, namespaceSelector={}) == told() == ""


def test_hashed_by_namespace_what_has_none_is_one_shards_and_that_is_told() -> None:
    nodes = Resource("", "v1", "nodes", "Node", namespaced=False)
    served = {**SERVED, nodes.group_resource: nodes}
    listed = [{"resource": "nodes"}, {"resource": "secrets"}]

    def told(**spec: Any) -> str | None:
        return unsuited(resolve(parse_ring(ring(listed, **spec)), served)[0])

    said = told(assignment="Ranges", hashBy="Namespace")
    assert said is not None
    assert "nodes have no namespace" in said
    assert "hashBy UID" in said
    assert told(assignment="Ranges", hashBy="UID") is None
    assert told() is None
