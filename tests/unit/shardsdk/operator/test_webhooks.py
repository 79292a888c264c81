"""Webhooks of operators: what is refused where they are declared, what is rendered of them, and what `drive` shows."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from shardsdk import Context, Operator
from shardsdk.admission import Denied, Review, Serving
from shardsdk.errors import ConfigurationError, Forbidden, Invalid, ServerError
from shardsdk.kinds import CustomResource, Model, Namespace, Node, resource_of
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import ConfigMap


class PageSpec(Model):
    html: str
    replicas: int = 0


class PageStatus(Model):
    seen: int = 0


class Page(CustomResource[PageSpec, PageStatus], group="example.com", version="v1"):
    """A page."""


def pages(**options: Any) -> Operator:
    """An operator that fills in replicas, refuses pages without content, and keeps those that are called "kept"."""
    operator = Operator("pages", **options)

    @operator.reconcile(Page, owns=[ConfigMap])
    async def page(ctx: Context[Page]) -> PageStatus:
        return PageStatus(seen=ctx.object.spec.replicas)

    @operator.mutate(Page)
    def fill_in(review: Review[Page]) -> None:
        review.object.spec.replicas = review.object.spec.replicas or 2

    @operator.validate(Page, on=["create", "update", "delete"], match_conditions=["true"])
    async def check(review: Review[Page]) -> str | None:
        if review.operation == "DELETE" and review.name == "kept":
            raise Denied("it is kept")
        if review.object.spec.html == "bug":
            raise RuntimeError("no such page")
        if not review.object.spec.html:
            raise Denied("is empty", field="spec.html")
        if review.old is not None and review.old.spec.html != review.object.spec.html and review.name == "kept":
            raise Denied("it is kept as it is")
        return "few replicas" if review.object.spec.replicas < 2 else None

    return operator


@pytest.mark.parametrize("sharded", [False, True])
def test_what_is_created_is_changed_then_checked_then_reconciled(sharded: bool) -> None:
    rig = drive(pages(sharded=sharded), [Page("home", PageSpec("<h1>"))])
    home = rig.get(Page, "home")
    assert (home.spec.replicas, home.status.seen) == (2, 2)
    assert not rig.warnings


async def story(rig: Rig) -> None:
    with pytest.raises(
        Invalid, match=r'^admission webhook "check.pages.example.com" denied the request: spec.html: is'
    ):
        rig.create(Page("empty", PageSpec("")))
    assert rig.find(Page, "empty") is None
    made = rig.create(Page("kept", PageSpec("<h1>", replicas=1)))
    assert made.spec.replicas == 1
    assert rig.warnings == [("check.pages.example.com", "few replicas")]
    with pytest.raises(Forbidden, match="it is kept as it is"):
        rig.patch(Page, "kept", {"spec": {"html": "<h2>"}})
    with pytest.raises(Forbidden, match="it is kept"):
        rig.delete(Page, "kept")
    rig.create(Page("other", PageSpec("<h1>")))
    rig.delete(Page, "other")
    assert rig.find(Page, "other") is None
    with pytest.raises(ServerError, match="the webhook failed: RuntimeError: no such page"):
        rig.create(Page("bug", PageSpec("bug")))
    with pytest.raises(Invalid, match="does not fit Page: Expected `str`, got `int`"):
        rig.create(resource_of(Page), {"metadata": {"name": "number"}, "spec": {"html": 7}})


def test_whoever_writes_reads_what_the_function_says() -> None:
    rig = drive(pages(), [], story)
    assert [each.metadata.name for each in rig.objects(Page)] == ["kept"]


def test_an_object_that_is_denied_is_no_object_to_begin_with() -> None:
    with pytest.raises(Invalid, match="is empty"):
        drive(pages(), [Page("home", PageSpec(""))])


def test_a_status_and_what_is_on_its_way_out_are_not_asked_about() -> None:
    asked: list[str] = []
    operator = Operator("pages")

    @operator.validate(Page)
    def note(review: Review[Page]) -> None:
        asked.append(review.operation)

    async def story(rig: Rig) -> None:
        rig.create(resource_of(Page), {"metadata": {"name": "a", "finalizers": ["x/y"]}, "spec": {"html": ""}})
        rig.server.patch(resource_of(Page), "a", "default", {"status": {"seen": 1}}, subresource="status")
        rig.delete(Page, "a")
        rig.patch(Page, "a", {"metadata": {"finalizers": None}})

    assert not drive(operator, [], story).objects(Page)
    assert asked == ["CREATE"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"on": []}, 'name some of "create", "update", "delete"'),
    "unknown": ({"on": ["patch"]}, 'name some of "create", "update", "delete"'),
    "policy": ({"on_failure": "ignore"}, 'write "Fail" or "Ignore"'),
    "seconds": ({"timeout_seconds": 31}, "use 1 to 30"),
    "half seconds": ({"timeout_seconds": 2.5}, r"timeout_seconds=2\.5 .* use 1 to 30, in whole seconds"),
    "no seconds": ({"timeout_seconds": True}, "use 1 to 30"),
    "conditions": ({"match_conditions": "true"}, "takes a list"),
    "no condition": ({"match_conditions": [True]}, "takes a list"),
    "condition's name": ({"match_conditions": {"Bad Key": "true"}}, "match_conditions= has one called 'Bad Key'"),
    "condition's empty name": ({"match_conditions": {"": "true"}}, "match_conditions= has one called ''"),
    "labels alone": (
        {"object_selector": {"app": "mine"}},
        r"object_selector=\{'app': 'mine'\} is no LabelSelector: .*unknown field `app`; write .*matchLabels",
    ),
    "labels of namespaces alone": (
        {"namespace_selector": {"app": "mine"}},
        "namespace_selector=.* is no LabelSelector",
    ),
    "no text": ({"object_selector": {"matchLabels": {"app": 1}}}, r"Expected `str`, got `int`.*matchLabels"),
    "null": ({"object_selector": {"matchLabels": None}}, "Expected `object`, got `null`"),
    "selector of another kind": ({"object_selector": "app=mine"}, "is no LabelSelector"),
    "operator": (
        {"object_selector": {"matchExpressions": [{"key": "a", "operator": "in"}]}},
        "Invalid enum value 'in'",
    ),
    "expression": (
        {"object_selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "value": "b"}]}},
        "unknown field `value`",
    ),
    "name": ({"name": "no_label"}, "pass name="),
}


@pytest.mark.parametrize(("options", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_where_it_is_written(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Operator("pages").validate(Page, **options)(lambda review: None)


def test_selectors_are_kept_as_they_are_written() -> None:
    operator = Operator("pages")
    tier = {"key": "tier", "operator": "In", "values": ["web", "api"]}
    mine = {"matchLabels": {"app": "mine"}, "matchExpressions": [tier, {"key": "off", "operator": "DoesNotExist"}]}

    @operator.validate(ConfigMap, object_selector=mine, namespace_selector={}, match_conditions={"a.b/C_d": "true"})
    def check(review: Review[ConfigMap]) -> None: ...

    (made,) = operator.webhook_configurations("team")
    (webhook,) = made["webhooks"]
    assert (webhook["objectSelector"], webhook["namespaceSelector"]) == (mine, {})
    assert webhook["matchConditions"][-1] == {"name": "a.b/C_d", "expression": "true"}


def test_a_name_is_made_of_the_functions() -> None:
    operator = Operator("pages")

    @operator.validate(ConfigMap)
    def Check_it(review: Review[ConfigMap]) -> None: ...

    operator.validate(ConfigMap, name="again")(Check_it)
    assert [each.name for each in operator.webhooks()] == ["check-it.configmaps.core", "again.configmaps.core"]
    with pytest.raises(ConfigurationError, match="two webhooks called 'again"):
        operator.validate(ConfigMap, name="again")(Check_it)
    with pytest.raises(ConfigurationError, match="pass name="):
        operator.validate(ConfigMap)(partial(print))


def test_what_is_deleted_cannot_be_changed() -> None:
    with pytest.raises(ConfigurationError, match="write a finalizer"):
        Operator("pages").mutate(Page, on=["delete"])


def test_configurations_say_when_and_how_it_is_called() -> None:
    mutating, validating = pages(sharded=True, watch_namespace=["b", "a"]).webhook_configurations("system")
    assert (mutating["kind"], validating["kind"]) == ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    assert {each["metadata"]["name"] for each in (mutating, validating)} == {"pages"}
    [hook] = validating["webhooks"]
    assert hook["clientConfig"] == {
        "service": {
            "name": "pages-webhooks", "namespace": "system", "path": "/validate/check.pages.example.com"
        }
    }  # fmt: skip
    assert hook["rules"] == [
        {
            "apiGroups": ["example.com"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["pages"],
            "scope": "Namespaced",
        }
    ]
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    assert hook["namespaceSelector"] == {"matchExpressions": [named]}
    assert (hook["failurePolicy"], hook["sideEffects"], hook["timeoutSeconds"]) == ("Fail", "None", 5)
    names = [each["name"] for each in hook["matchConditions"]]
    assert names == ["not-on-its-way-out", "more-than-another-shard", "condition-1"]
    assert mutating["webhooks"][0]["reinvocationPolicy"] == "IfNeeded"
    assert pages().webhook_service("system") == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "pages-webhooks", "namespace": "system", "labels": {"app.kubernetes.io/name": "pages"}
        },
        "spec": {
            "selector": {"app.kubernetes.io/name": "pages"},
            "ports": [{"name": "https", "port": 443, "targetPort": "webhooks"}],
        },
    }  # fmt: skip


def test_an_operator_without_webhooks_needs_nothing_for_them() -> None:
    operator = Operator("pages")

    @operator.reconcile(Page)
    async def page(ctx: Context[Page]) -> None: ...

    assert operator.webhook_configurations("system") == []
    assert operator.webhook_service("system") is None
    assert "secrets" not in str(operator.permissions())
    asked = pages().permissions()
    assert [rule for rule in asked.own if "secrets" in rule["resources"]] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["pages-webhook-certificates"],
            "verbs": ["get", "patch"],
        },
    ]
    assert asked.cluster == (
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            "verbs": ["get", "patch"],
            "resourceNames": ["pages"],
        },
    )


def test_whoever_does_not_serve_its_webhooks_needs_nothing_for_them() -> None:
    for served in (None, Serving(cert_dir="/certificates")):
        asked = pages().permissions(webhooks=served)
        assert "secrets" not in str(asked)
        assert asked.cluster == ()


def test_whoever_serves_them_outside_of_a_pod_makes_configurations_of_its_own() -> None:
    asked = pages().permissions(webhooks=Serving.reached_at("127.0.0.1"))
    assert "secrets" not in str(asked.own)
    both = {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
    }
    assert asked.cluster == (
        {**both, "verbs": ["create"]},
        {**both, "verbs": ["get", "patch", "delete"], "resourceNames": ["pages-dev"]},
    )


def test_its_kinds_are_the_operators() -> None:
    operator = Operator("pages")
    operator.validate(Page, name="any")(lambda review: None)
    assert operator.kinds() == [Page]


def test_namespaces_are_selected_by_their_own_labels_and_others_without_one_are_not() -> None:
    operator, selector = Operator("spaces"), {"matchLabels": {"team": "web"}}
    operator.validate(Namespace, namespace_selector=selector)(nothing)
    [made] = operator.webhook_configurations("system", namespaces=["a"])
    assert made["webhooks"][0]["namespaceSelector"] == selector
    with pytest.raises(ConfigurationError, match="Node is in no namespace: use object_selector="):
        operator.validate(Node, namespace_selector=selector)
    operator.validate(Node)


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"matchLabels": {"team": "web"}},
        {"matchExpressions": [{"key": "team", "operator": "Exists"}], "matchLabels": {"team": "web"}},
    ],
)
def test_a_webhooks_own_selector_selects_among_the_namespaces_that_are_watched(own: dict[str, Any]) -> None:
    operator = Operator("pages", watch_namespace=["b", "a"])
    operator.validate(Page, namespace_selector=own)(nothing)
    [made] = operator.webhook_configurations("system")
    watched = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    expressions = [*own.get("matchExpressions", []), watched]
    assert made["webhooks"][0]["namespaceSelector"] == {**own, "matchExpressions": expressions}


def nothing(review: Review[Any]) -> None:
    """Lets everything pass."""
