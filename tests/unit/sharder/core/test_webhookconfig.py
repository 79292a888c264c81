"""The webhook configuration of a ring, as the contract has it."""

from __future__ import annotations

from base64 import b64encode
from copy import deepcopy
from typing import Any

import pytest

from sharder.core.ringspec import ResolvedMain, ResolvedRing, parse_ring
from sharder.core.webhookconfig import (
    account_in,
    differs,
    find_difference,
    find_last_manager,
    find_narrowing,
    match_conditions,
    render_webhook,
    webhook_name,
)
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import Resource

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SHARD = parse_ring_name("example").shard
SERVICE = {"service": {"namespace": "sharding-system", "name": "sharder"}}


def ring(*mains: ResolvedMain, **spec: Any) -> ResolvedRing:
    raw = {"metadata": {"name": "example", "uid": "ring-uid"}, "spec": {"resources": [], **spec}}
    return ResolvedRing(parse_ring(raw), mains)


PLAIN = ring(ResolvedMain(SECRETS))
FAMILY = ring(ResolvedMain(DEPLOYMENTS), ResolvedMain(SECRETS, (CONFIGMAPS,)))


def webhook(given: ResolvedRing = PLAIN, **more: Any) -> dict[str, Any]:
    rendered = render_webhook(given, **{"client_config": SERVICE, **more})
    (only,) = rendered["webhooks"]
    assert isinstance(only, dict)
    return only


def test_it_is_the_rings() -> None:
    metadata = render_webhook(PLAIN, client_config=SERVICE, annotations={"a": "b"})["metadata"]
    assert metadata == {
        "name": webhook_name("example"),
        "labels": {
            "app.kubernetes.io/name": "controller-sharding",
            "alpha.sharding.timebertt.dev/clusterring": "example",
        },
        "annotations": {"admissions.enforcer/disabled": "true", "a": "b"},
        "ownerReferences": [
            {
                "apiVersion": "sharding.timebertt.dev/v1alpha1",
                "kind": "ClusterRing",
                "name": "example",
                "uid": "ring-uid",
                "controller": True,
            }
        ],
    }


def test_it_never_stands_in_the_way() -> None:
    found = webhook()
    assert (found["name"], found["failurePolicy"], found["sideEffects"], found["timeoutSeconds"]) == (
        "sharder.sharding.timebertt.dev",
        "Ignore",
        "None",
        5,
    )


def test_rules_cover_create_and_update_of_every_version_and_no_subresource_but_the_status() -> None:
    assert webhook(FAMILY)["rules"] == [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": resources,
            "scope": "*",
        }
        for group, resources in (
            ("", ["configmaps", "configmaps/status", "secrets", "secrets/status"]),
            ("apps", ["deployments", "deployments/status"]),
        )
    ]


@pytest.mark.parametrize(
    ("group", "asked"),
    [
        ("batch", True), ("policy", True), ("networking.k8s.io", True), ("flowcontrol.apiserver.k8s.io", True),
        ("example.com", False), ("gateway.networking.k8s.io", False), ("kueue.x-k8s.io", False),
    ],
)  # fmt: skip
def test_nobody_is_asked_about_the_status_of_custom_resources(group: str, asked: bool) -> None:
    """Writing it changes none of their labels, and many write it without any."""
    found = webhook(ring(ResolvedMain(Resource(group, "v1", "things", "Thing"))))
    assert ("things/status" in found["rules"][0]["resources"]) is asked
    assert ("is-no-status-or-wore-the-shard-label" in str(found["matchConditions"])) is asked


def test_the_rings_namespaces_are_selected() -> None:
    assert webhook()["objectSelector"] == {}
    assert webhook()["namespaceSelector"] == {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", "sharding-system"],
            }
        ]
    }
    selected = ring(ResolvedMain(SECRETS), namespaceSelector={"matchLabels": {"a": "b"}})
    assert webhook(selected)["namespaceSelector"] == {"matchLabels": {"a": "b"}}


LACKS = f"!has(object.metadata.labels) || !('{SHARD}' in object.metadata.labels)"
WORN = {
    "name": "is-no-status-or-wore-the-shard-label",
    "expression": "!has(request.subResource) || request.subResource == ''"
    f" || (has(oldObject.metadata.labels) && '{SHARD}' in oldObject.metadata.labels)",
}
CONTROLLED = "(request.resource.group + '/' + request.resource.resource) in ['/configmaps']"


def test_conditions_keep_out_what_needs_no_answer() -> None:
    assert match_conditions(PLAIN) == [
        {"name": "lacks-the-shard-label-or-is-new", "expression": f"{LACKS} || (request.operation == 'CREATE')"},
        WORN,
    ]
    assert match_conditions(FAMILY) == [
        {
            "name": "lacks-the-shard-label-or-is-new",
            "expression": f"{LACKS} || (request.operation == 'CREATE' && !({CONTROLLED}))",
        },
        WORN,
        {
            "name": "is-main-or-has-a-controller",
            "expression": f"!({CONTROLLED})"
            " || (has(object.metadata.ownerReferences)"
            " && object.metadata.ownerReferences.exists(r, has(r.controller) && r.controller))",
        },
    ]


def test_once_the_sharders_account_is_known_others_that_change_the_label_call_in() -> None:
    account = "it's\\a\\name"
    found = webhook(FAMILY, account=account)
    assert found["objectSelector"] == {}
    changed, worn, controlled = found["matchConditions"]
    assert changed == {
        "name": "lacks-or-changes-the-shard-label-or-is-new",
        "expression": f"{LACKS} || (request.operation == 'CREATE' && !({CONTROLLED}))"
        " || (request.operation == 'UPDATE' && request.userInfo.username != 'it\\'s\\\\a\\\\name'"
        f" && has(oldObject.metadata.labels) && '{SHARD}' in oldObject.metadata.labels"
        f" && oldObject.metadata.labels['{SHARD}'] != object.metadata.labels['{SHARD}'])",
    }
    assert [worn, controlled] == match_conditions(FAMILY)[1:]
    assert account_in(found, FAMILY) == account
    assert account_in(webhook(FAMILY), FAMILY) == ""
    assert account_in({}, FAMILY) == ""


def test_the_api_server_waits_as_long_as_is_configured() -> None:
    assert webhook(timeout_seconds=2)["timeoutSeconds"] == 2


PATH = "/webhooks/sharder/clusterring/example"


@pytest.mark.parametrize(
    ("given", "rendered"),
    [
        ({"url": "https://host:1"}, {"url": "https://host:1" + PATH}),
        ({"url": "https://host:1/base/"}, {"url": "https://host:1/base" + PATH}),
        (SERVICE, {"service": {**SERVICE["service"], "path": PATH}}),
        (
            {"service": {"name": "s", "path": "/base/", "port": 8443}},
            {"service": {"name": "s", "path": "/base" + PATH, "port": 8443}},
        ),
        ({"url": "https://h", "caBundle": "Zm9v"}, {"url": "https://h" + PATH, "caBundle": "Zm9v"}),
    ],
)
def test_the_rings_path_follows_what_is_configured(given: dict[str, Any], rendered: dict[str, Any]) -> None:
    before = deepcopy(given)
    assert webhook(client_config=given)["clientConfig"] == rendered
    assert given == before


def test_our_own_ca_is_injected() -> None:
    assert webhook(ca_bundle=b"pem")["clientConfig"]["caBundle"] == b64encode(b"pem").decode()


def test_a_ring_with_nothing_served_calls_nobody() -> None:
    assert render_webhook(ring(), client_config=SERVICE)["webhooks"] == []


def test_what_the_api_server_and_others_add_is_no_difference() -> None:
    wanted = render_webhook(FAMILY, client_config=SERVICE)
    current = deepcopy(wanted)
    current["metadata"].update(uid="1", resourceVersion="2")
    current["metadata"]["annotations"]["cert-manager.io/x"] = "y"
    current["webhooks"][0]["clientConfig"]["caBundle"] = "injected"
    current["webhooks"][0]["clientConfig"]["service"]["port"] = 443
    assert not differs(current, wanted)


@pytest.mark.parametrize(
    "change",
    [
        lambda current: current["webhooks"].clear(),
        lambda current: current["webhooks"].append({"name": "another"}),
        lambda current: current["webhooks"][0].update(failurePolicy="Fail"),
        lambda current: current["webhooks"][0]["rules"][0]["resources"].append("pods"),
        lambda current: current["webhooks"][0].pop("matchConditions"),
        lambda current: current["webhooks"][0].update(rules=None),
        lambda current: current["metadata"].pop("labels"),
        lambda current: current["metadata"]["ownerReferences"][0].update(uid="old"),
    ],
)
def test_what_somebody_changed_is_a_difference(change: Any) -> None:
    wanted = render_webhook(FAMILY, client_config=SERVICE)
    current = deepcopy(wanted)
    change(current)
    assert differs(current, wanted)


def test_a_difference_is_named_by_its_path() -> None:
    wanted = render_webhook(FAMILY, client_config=SERVICE)
    current = deepcopy(wanted)
    current["webhooks"][0]["namespaceSelector"]["matchExpressions"].append({"key": "a", "operator": "Exists"})
    assert find_difference(current, wanted) == "webhooks[0].namespaceSelector.matchExpressions"
    current["webhooks"][0]["namespaceSelector"] = {
        **wanted["webhooks"][0]["namespaceSelector"], "matchLabels": {"a": "b"}
    }  # fmt: skip
    assert find_difference(current, wanted) == "webhooks[0].namespaceSelector"
    assert find_difference(wanted, wanted) is None


@pytest.mark.parametrize(
    ("entries", "last"),
    [
        (None, ""),
        ([{"manager": "sharder", "time": "2026-01-01T00:00:00Z"}], "sharder"),
        ([{"manager": "a", "time": "2026-01-01T00:00:01Z"}, {"manager": "b", "time": "2026-01-01T00:00:00Z"}], "a"),
        (
            [{"manager": "sharder", "time": "2026-01-01T00:00:00Z"}, {"manager": "a", "time": "2026-01-01T00:00:00Z"}],
            "a",
        ),
        ([{"manager": "a", "time": "2026-01-01T00:00:00Z"}, {"manager": "b"}], "a"),
    ],
)
def test_who_has_written_last_is_read_from_the_managers_of_fields(entries: Any, last: str) -> None:
    assert find_last_manager({"metadata": {"managedFields": entries}}, "sharder") == last


def test_a_selector_where_everything_is_to_be_selected_is_a_difference() -> None:
    assert differs({"objectSelector": {"matchLabels": {"a": "b"}}}, {"objectSelector": {}})


def test_nothing_there_is_a_difference() -> None:
    assert differs(None, render_webhook(PLAIN, client_config=SERVICE))


def test_an_absent_empty_value_is_none() -> None:
    assert not differs({}, {"namespaceSelector": {}, "webhooks": []})


def test_only_what_is_added_to_a_namespace_selector_and_nothing_else_narrows_it() -> None:
    added = {"key": "a", "operator": "Exists"}
    for own in ({}, {"matchLabels": {"b": "c"}}, {"matchExpressions": [{"key": "b", "operator": "Exists"}]}):
        wanted = {"webhooks": [{**webhook(), "namespaceSelector": own}]}
        assert find_narrowing(wanted, wanted) == []
        narrowed = deepcopy(wanted)
        selector = narrowed["webhooks"][0]["namespaceSelector"]
        selector["matchExpressions"] = [added, *selector.get("matchExpressions", ())]
        assert find_narrowing(narrowed, wanted) == [added]
        assert find_narrowing({"webhooks": [*narrowed["webhooks"], {"name": "another"}]}, wanted) == []
        selector["matchLabels"] = {"d": "e"}
        assert find_narrowing(narrowed, wanted) == []
    assert find_narrowing({}, {"webhooks": [webhook()]}) == []
