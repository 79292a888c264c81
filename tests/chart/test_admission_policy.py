"""Who may change shard and drain labels while the ValidatingAdmissionPolicy is on, on a real API server.

The policy sees what the webhook left behind, under the name of whoever wrote; the webhook's part is written by hand
here; tests/chart/test_running.py has both together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import yaml

from localcluster import AdminClient, AdminError, ControlPlane
from shardsdk.protocol.labels import parse_ring_name
from tests.chart.helm import NAMESPACE, Helm, is_hook
from tests.chart.identities import account_token, allow, client_of, make_account, make_pod
from tests.chart.releases import CONFIGMAPS

SPACE = "policy"
#: Where somebody may make pods who has no business with the ring.
BEYOND = "beyond"
RING = parse_ring_name("one")
OTHER = parse_ring_name("two")
SHARD, DRAIN = RING.shard, RING.drain

#: As other authenticators may have it; it has to be text in CEL, and in YAML.
ODD_NAME = 'Miles O\'Brien "<chief>" \\x'

VALUES: dict[str, Any] = {
    "rings": {
        "one": {"resources": [{"resource": "secrets", "controlledResources": [{"resource": "configmaps"}]}]},
        "two": {"resources": [{"resource": "pods"}]},
    },
    "admissionPolicy": {
        "enabled": True,
        "exempt": {
            "users": [ODD_NAME, f"system:serviceaccount:{SPACE}:janitor"],
            "groups": [ODD_NAME, "system:serviceaccounts:elsewhere"],
        },
        "shards": [{"namespace": SPACE, "serviceAccount": "controller"}],
    },
}

Labels = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Case:
    """`who` merges `change` into the labels of a ConfigMap that has `before`; `refused` None: it may."""

    who: str
    before: Labels
    change: Labels
    refused: str | None = None


OWNED = {SHARD: "shard-a"}
DRAINING = {SHARD: "shard-a", DRAIN: "true"}
CHANGED = "only the sharder may change"
DRAINED = "only the sharder may ask a shard to let go"
HANDED = "only the sharder, or the pod"

CASES = {
    # From no shard to one: what a write looks like once the webhook has answered it.
    "anyone's object gains a shard": Case("somebody", {}, OWNED),
    "anyone's object gains a second ring's shard": Case("somebody", {OTHER.shard: "x"}, OWNED),
    "anyone adds a drain label where there is no shard": Case("somebody", {"a": "b"}, {DRAIN: "true"}),
    # While it has one.
    "anyone changes other labels": Case("somebody", OWNED, {"a": "b"}),
    "anyone changes other labels while draining": Case("somebody", DRAINING, {"a": "b"}),
    "anyone changes the shard": Case("somebody", OWNED, {SHARD: "shard-b"}, CHANGED),
    "anyone removes the shard": Case("somebody", OWNED, {SHARD: None}, CHANGED),
    "anyone asks for a drain": Case("somebody", OWNED, {DRAIN: "true"}, DRAINED),
    "anyone asks for a drain of another ring's": Case(
        "somebody", {**OWNED, OTHER.shard: "x"}, {OTHER.drain: "y"}, DRAINED
    ),
    "anyone removes one ring's shard of two": Case(
        "somebody", {**OWNED, OTHER.shard: "x"}, {OTHER.shard: None}, CHANGED
    ),
    "the shard itself changes the shard": Case("pod shard-a", OWNED, {SHARD: "shard-b"}, CHANGED),
    "the shard itself removes the shard without drain": Case("pod shard-a", OWNED, {SHARD: None}, CHANGED),
    "the shard itself asks for a drain": Case("pod shard-a", OWNED, {DRAIN: "true"}, DRAINED),
    "the shard changes other labels": Case("pod shard-a", OWNED, {"a": "b"}),
    # Acknowledging a drain.
    "the shard acknowledges": Case("pod shard-a", DRAINING, {SHARD: None, DRAIN: None}),
    "the shard acknowledges, the webhook names the next": Case(
        "pod shard-a", DRAINING, {SHARD: "shard-b", DRAIN: None}
    ),
    "the shard acknowledges, the webhook names it again": Case("pod shard-a", DRAINING, {DRAIN: None}),
    "the shard removes only its own label": Case("pod shard-a", DRAINING, {SHARD: None}, HANDED),
    "another shard acknowledges": Case("pod shard-b", DRAINING, {SHARD: None, DRAIN: None}, HANDED),
    "another shard takes it": Case("pod shard-b", DRAINING, {SHARD: "shard-b", DRAIN: None}, HANDED),
    "a pod of another account, named like the shard": Case("pod eve", DRAINING, {SHARD: None, DRAIN: None}, HANDED),
    "anyone acknowledges": Case("somebody", DRAINING, {SHARD: None, DRAIN: None}, HANDED),
    "anyone calls the drain off": Case("somebody", DRAINING, {DRAIN: None}, HANDED),
    "anyone changes the shard of a draining object": Case("somebody", DRAINING, {SHARD: "shard-b"}, HANDED),
    "an account that is named like the shard": Case("shard-a", DRAINING, {SHARD: None, DRAIN: None}, HANDED),
    "one ring's acknowledgement leaves the other's shard": Case(
        "pod shard-a", {**DRAINING, OTHER.shard: "shard-a"}, {SHARD: None, DRAIN: None, OTHER.shard: None}, CHANGED
    ),
    # The sharder.
    "the sharder moves": Case("sharder", OWNED, {SHARD: "shard-b"}),
    "the sharder drains": Case("sharder", OWNED, {DRAIN: "true"}),
    "the sharder moves what is draining": Case("sharder", DRAINING, {SHARD: "shard-b", DRAIN: None}),
    "the sharder releases": Case("sharder", OWNED, {SHARD: None}),
    "a sharder of another namespace": Case("impostor", OWNED, {SHARD: None}, CHANGED),
    # Exempt.
    "an exempt user cleans up": Case("janitor", OWNED, {SHARD: None}),
    "an exempt group cleans up": Case("outsider", OWNED, {SHARD: None}),
}


@dataclass(frozen=True, slots=True)
class World:
    """A cluster with the policy in force, and a token for everyone in the cases."""

    plane: ControlPlane
    tokens: Mapping[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(chart_control_plane: ControlPlane, helm: Helm) -> AsyncIterator[World]:
    plane = chart_control_plane
    documents = [each for each in helm.render(VALUES) if not is_hook(each)]
    policy = [each for each in documents if each["metadata"]["name"] == "sharder-labels"]
    async with plane.admin() as admin:
        for namespace in (SPACE, NAMESPACE, "elsewhere", BEYOND):
            if await admin.find("v1/namespaces", namespace) is None:
                await admin.namespace(namespace)
        await allow(admin, SPACE, "configmaps", "pods", "pods/status")
        tokens = await make_identities(admin)
        await plane.apply(stdin=yaml.safe_dump_all(policy))
        await in_force(admin)
        yield World(plane, tokens)
        for resource in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            await admin.delete(f"admissionregistration.k8s.io/v1/{resource}", "sharder-labels")
        await admin.delete("v1/serviceaccounts", "sharder", NAMESPACE)
        await admin.delete("v1/namespaces", SPACE)
        await admin.delete("v1/namespaces", "elsewhere")
        await admin.delete("v1/namespaces", BEYOND)


async def make_identities(admin: AdminClient) -> dict[str, str]:
    accounts = {
        "sharder": (NAMESPACE, "sharder"),
        "impostor": (SPACE, "sharder"),
        "somebody": (SPACE, "somebody"),
        "janitor": (SPACE, "janitor"),
        "outsider": ("elsewhere", "outsider"),
        "shard-a": (SPACE, "shard-a"),
    }
    tokens = {}
    for who, (namespace, account) in accounts.items():
        await make_account(admin, namespace, account)
        tokens[who] = await account_token(admin, namespace, account)
    await make_account(admin, SPACE, "controller")
    for shard in ("shard-a", "shard-b"):
        pod = await make_pod(admin, SPACE, shard, "controller")
        tokens[f"pod {shard}"] = await account_token(admin, SPACE, "controller", pod)
    await make_account(admin, BEYOND, "controller")
    pod = await make_pod(admin, BEYOND, "shard-a", "controller")
    tokens["pod eve"] = await account_token(admin, BEYOND, "controller", pod)
    return tokens


async def in_force(admin: AdminClient) -> None:
    """Wait until the API server has taken notice of the policy."""
    async with asyncio.timeout(120):
        while True:
            # A fresh object each time: what undoes an attempt could be the first write that is refused.
            made = await admin.create(CONFIGMAPS, {"metadata": {"generateName": "probe-", "labels": OWNED}}, SPACE)
            if await refusal(admin, made["metadata"]["name"], {SHARD: "b"}):
                return
            await asyncio.sleep(0.1)


async def refusal(client: AdminClient, name: str, change: Labels) -> str | None:
    try:
        await client.patch(CONFIGMAPS, name, {"metadata": {"labels": dict(change)}}, SPACE)
    except AdminError as error:
        if error.status != 403:
            raise
        return str(error)
    return None


async def check(admin: AdminClient, name: str, case: Case | Change, said: str | None) -> None:
    """The labels are as the case has it, and so is what was said."""
    after = (await admin.get(CONFIGMAPS, name, SPACE))["metadata"].get("labels", {})
    if case.refused is None:
        merged = {**case.before, **case.change}
        assert (said, after) == (None, {key: value for key, value in merged.items() if value is not None})
    else:
        assert said is not None
        assert case.refused in said
        assert after == case.before


@pytest.mark.parametrize("title", CASES)
async def test_who_may_change_which_label(world: World, title: str) -> None:
    case = CASES[title]
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(world.plane.admin())
        client = await stack.enter_async_context(client_of(world.plane, world.tokens[case.who]))
        made = await admin.create(CONFIGMAPS, {"metadata": {"generateName": "c-", "labels": dict(case.before)}}, SPACE)

        said = await refusal(client, made["metadata"]["name"], case.change)

        await check(admin, made["metadata"]["name"], case, said)


async def test_a_refusal_names_the_label_and_says_what_to_do(world: World) -> None:
    async with client_of(world.plane, world.tokens["somebody"]) as client:
        await client.create(CONFIGMAPS, {"metadata": {"name": "told", "labels": OWNED}}, SPACE)
        said = await refusal(client, "told", {SHARD: "shard-b"})

    assert said is not None
    assert f"{SHARD} while it names a shard; to move the object, stop that shard or let the sharder rebalance" in said


@dataclass(frozen=True, slots=True)
class Change:
    """`who` gives a ConfigMap an owner that controls it, or takes it away, and merges `change` into its labels."""

    who: str
    adopts: bool
    before: Labels
    change: Labels
    refused: str | None = None


CHANGES = {
    "a shard adopts another's orphan": Change("pod shard-b", True, OWNED, {SHARD: "shard-b"}),
    "a shard adopts and leaves the label": Change("pod shard-b", True, OWNED, {}),
    "a shard adopts for another shard": Change("pod shard-b", True, OWNED, {SHARD: "shard-c"}, CHANGED),
    "a shard adopts and takes the label away": Change("pod shard-b", True, OWNED, {SHARD: None}, CHANGED),
    "a pod of another account adopts": Change("pod eve", True, {SHARD: "shard-b"}, {SHARD: "shard-a"}, CHANGED),
    "anyone adopts": Change("somebody", True, OWNED, {SHARD: "shard-b"}, CHANGED),
    "a shard adopts what is being drained": Change(
        "pod shard-b", True, DRAINING, {SHARD: "shard-b", DRAIN: None}, HANDED
    ),
    "a shard releases its child": Change("pod shard-a", False, OWNED, {SHARD: None}),
    "a shard releases another's child": Change("pod shard-b", False, OWNED, {SHARD: None}, CHANGED),
    "a shard releases to another": Change("pod shard-a", False, OWNED, {SHARD: "shard-b"}, CHANGED),
    "anyone releases": Change("somebody", False, OWNED, {SHARD: None}, CHANGED),
}


@pytest.mark.parametrize("title", CHANGES)
async def test_who_may_take_a_label_along_with_a_child(world: World, title: str) -> None:
    case = CHANGES[title]
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(world.plane.admin())
        client = await stack.enter_async_context(client_of(world.plane, world.tokens[case.who]))
        owner = await admin.create(CONFIGMAPS, {"metadata": {"generateName": "o-"}}, SPACE)
        meta = {key: owner["metadata"][key] for key in ("name", "uid")}
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "controller": True, **meta}
        metadata = {"generateName": "c-", "labels": dict(case.before)}
        before = metadata if case.adopts else {**metadata, "ownerReferences": [reference]}
        made = await admin.create(CONFIGMAPS, {"metadata": before}, SPACE)
        references = [reference] if case.adopts else []
        change = {"metadata": {"labels": dict(case.change), "ownerReferences": references}}

        said = None
        try:
            await client.patch(CONFIGMAPS, made["metadata"]["name"], change, SPACE)
        except AdminError as error:
            said = str(error)

        await check(admin, made["metadata"]["name"], case, said)


async def test_objects_are_created_and_deleted_as_ever(world: World) -> None:
    async with client_of(world.plane, world.tokens["somebody"]) as client:
        metadata = {"name": "kept", "labels": DRAINING, "finalizers": ["example.com/kept"]}
        await client.create(CONFIGMAPS, {"metadata": metadata}, SPACE)
        await client.delete(CONFIGMAPS, "kept", SPACE)
        await client.patch(CONFIGMAPS, "kept", {"metadata": {"finalizers": None}}, SPACE)
        assert await client.find(CONFIGMAPS, "kept", SPACE) is None


async def test_subresources_are_no_way_round(world: World) -> None:
    """A pod's status is one through which labels can be written."""
    async with client_of(world.plane, world.tokens["somebody"]) as client:
        spec = {"containers": [{"name": "c", "image": "none"}]}
        await client.create("v1/pods", {"metadata": {"name": "p", "labels": {OTHER.shard: "a"}}, "spec": spec}, SPACE)
        change = {"metadata": {"labels": {OTHER.shard: "b"}}}

        with pytest.raises(AdminError, match=CHANGED):
            await client.patch("v1/pods", "p", change, SPACE, subresource="status")
        await client.patch("v1/pods", "p", {"status": {"reason": "Tested"}}, SPACE, subresource="status")


async def test_other_resources_are_none_of_its_business(world: World) -> None:
    async with world.plane.admin() as admin:
        await admin.create(
            "v1/services", {"metadata": {"name": "s", "labels": OWNED}, "spec": {"ports": [{"port": 1}]}}, SPACE
        )
        await admin.patch("v1/services", "s", {"metadata": {"labels": {SHARD: None}}}, SPACE)


def test_what_it_watches_is_every_resource_of_the_rings_and_those_listed(helm: Helm) -> None:
    values = {
        **VALUES,
        "admissionPolicy": {"enabled": True, "resources": [{"group": "apps", "resource": "deployments"}]},
    }
    [policy] = [each for each in helm.render(values) if each["kind"] == "ValidatingAdmissionPolicy"]
    rules = policy["spec"]["matchConstraints"]["resourceRules"]

    assert {tuple(rule["apiGroups"]): rule["resources"] for rule in rules} == {
        ("",): ["configmaps", "configmaps/*", "pods", "pods/*", "secrets", "secrets/*"],
        ("apps",): ["deployments", "deployments/*"],
    }
    assert [condition["name"] for condition in policy["spec"]["matchConditions"]] == ["has-a-shard", "not-the-sharder"]


def test_it_can_be_watched_before_it_denies(helm: Helm) -> None:
    values = {**VALUES, "admissionPolicy": {"enabled": True, "actions": ["Audit", "Warn"], "failurePolicy": "Ignore"}}
    documents = helm.render(values)
    [binding] = [each for each in documents if each["kind"] == "ValidatingAdmissionPolicyBinding"]
    [policy] = [each for each in documents if each["kind"] == "ValidatingAdmissionPolicy"]

    assert binding["spec"]["validationActions"] == ["Audit", "Warn"]
    assert policy["spec"]["failurePolicy"] == "Ignore"


def test_without_a_list_of_accounts_any_pod_of_the_name_counts_and_leases_are_not_watched(helm: Helm) -> None:
    documents = helm.render({**VALUES, "admissionPolicy": {"enabled": True}})
    [policy] = [each for each in documents if each["kind"] == "ValidatingAdmissionPolicy"]
    [pod] = [each["expression"] for each in policy["spec"]["variables"] if each["name"] == "pod"]

    assert "username" not in pod
