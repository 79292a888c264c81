"""Webhooks of an operator, asked by a real API server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from localcluster import AdminClient, AdminError, ControlPlane
from shardsdk import Operator
from shardsdk.admission import FailurePolicy, Review, Serving
from shardsdk.admission.configuration import MUTATING, VALIDATING, secret_name
from shardsdk.kinds import ConfigMap, Kind, Role, Secret, crd_of, resource_of
from shardsdk.process.process import ExitCode
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.serving import secretstore
from shardsdk.serving.certificate_spec import Lifetimes
from shardsdk.testing.patching import merge
from tests.integration.operator_webhooks import (
    LOOPBACK,
    PAGES,
    InForce,
    Page,
    Seen,
    body,
    granted_kubeconfig,
    pages,
    run,
    webhooks_in_force,
)
from tests.integration.served import served
from tests.ports import free_port

CONFIGURATIONS = [f"{each.api_version}/{each.plural}" for each in (MUTATING, VALIDATING)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """With pages, served."""
    async with served(control_plane, crd_of(Page)):
        yield control_plane


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest_asyncio.fixture
async def force(plane: ControlPlane, admin: AdminClient, namespace: str, seen: Seen) -> AsyncIterator[InForce]:
    async with webhooks_in_force(plane, admin, namespace, pages(f"pages-{namespace}", namespace, seen)) as made:
        yield made


async def test_what_is_created_is_changed_and_checked(force: InForce, seen: Seen) -> None:
    made = await force.create("home")
    assert made["spec"] == {"html": "<h1>", "replicas": 2}
    said = 'webhook "check.pages.admission.example.com" denied the request: spec.html: is empty'
    with pytest.raises(AdminError, match=re.escape(said)):
        await force.create("empty", "")
    assert await force.admin.find(PAGES, "empty", force.namespace) is None
    assert seen.asked[-2:] == [("CREATE", "home", False), ("CREATE", "empty", False)]

    with pytest.raises(AdminError, match="is empty") as refused:
        await force.admin.patch(PAGES, "home", {"spec": {"html": ""}}, force.namespace)
    assert refused.value.status == 422
    assert seen.asked[-1] == ("UPDATE", "home", False)
    await force.create("kept")
    with pytest.raises(AdminError, match="it is kept") as refused:
        await force.admin.delete(PAGES, "kept", force.namespace)
    assert refused.value.status == 403


async def test_people_read_warnings_and_refusals(force: InForce) -> None:
    said = await force.plane.kubectl("-n", force.namespace, "apply", "-f-", stdin=json.dumps(body("short", "x")))
    assert "page.admission.example.com/short created" in said
    with pytest.raises(Exception, match=re.escape('The Page "empty" is invalid: spec.html: is empty')):
        await force.plane.kubectl("-n", force.namespace, "apply", "-f-", stdin=json.dumps(body("empty", "")))


async def test_a_dry_run_is_known_as_one_and_stores_nothing(force: InForce, seen: Seen) -> None:
    made = await force.create("tried", dry_run=True)
    assert made["spec"]["replicas"] == 2
    assert seen.asked[-1] == ("CREATE", "tried", True)
    assert await force.admin.find(PAGES, "tried", force.namespace) is None


async def test_what_is_on_its_way_out_can_be_finished_though_it_has_become_invalid(force: InForce, seen: Seen) -> None:
    await force.admin.request("POST", force.path, body=body("old", finalizers=["example.com/x"]))
    await force.admin.delete(PAGES, "old", force.namespace)
    before = list(seen.asked)
    await force.admin.patch(PAGES, "old", {"spec": {"html": ""}, "metadata": {"finalizers": None}}, force.namespace)
    assert await force.admin.find(PAGES, "old", force.namespace) is None
    assert seen.asked == before


async def test_an_object_that_goes_to_another_shard_is_not_asked_about(
    plane: ControlPlane, admin: AdminClient, namespace: str, seen: Seen
) -> None:
    operator = pages(f"pages-{namespace}", namespace, seen, sharded=True)
    ring = parse_ring_name(operator.name)
    unsharded = pages(operator.name, namespace, seen)
    unsharded.webhook_configurations = operator.webhook_configurations  # type: ignore[method-assign]
    async with webhooks_in_force(plane, admin, namespace, unsharded) as force:
        await force.create("home")
        before = list(seen.asked)
        for labels in ({ring.shard: "one"}, {ring.drain: "true"}, {ring.shard: None, ring.drain: None}):
            await admin.patch(PAGES, "home", {"metadata": {"labels": labels}}, namespace)
        assert seen.asked == before
        await admin.patch(PAGES, "home", {"metadata": {"labels": {"app": "x"}}}, namespace)
        # Once, or again: the API server begins a patch anew that it had prepared on an older version.
        assert set(seen.asked[len(before) :]) == {("UPDATE", "home", False)}
        with pytest.raises(AdminError, match="is empty"):
            await admin.patch(
                PAGES, "home", {"metadata": {"labels": {ring.shard: "two"}}, "spec": {"html": ""}}, namespace
            )


#: A kind, what is stored of it, and what somebody would change.
WITH_AND_WITHOUT_A_SPEC: list[tuple[type[Kind], dict[str, Any], dict[str, Any]]] = [
    (Page, {"spec": {"html": "hi"}}, {"spec": {"html": "evil"}}),
    (ConfigMap, {"data": {"a": "1"}}, {"data": {"a": "evil"}}),
    (ConfigMap, {"data": {"a": "1"}}, {"data": None}),
    (Secret, {"data": {"a": "aGk="}}, {"stringData": {"a": "evil"}}),
    (Role, {"rules": []}, {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
]
IN_METADATA: list[dict[str, Any]] = [
    {"annotations": {"a": "evil"}},
    {"annotations": None},
    {"finalizers": ["example.com/evil"]},
    {"labels": {"app": None}},
    {"labels": {"app": "evil"}},
    {"labels": {"evil": "yes"}},
]


async def test_while_nobody_answers_objects_change_hands_and_do_not_change(
    plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    operator = Operator(f"pages-{namespace}", watch_namespace=namespace, sharded=True)
    ring, shown = parse_ring_name(operator.name), {"annotations": {"a": "1"}, "labels": {"app": "x"}}
    for kind in dict.fromkeys(kind for kind, _, _ in WITH_AND_WITHOUT_A_SPEC):
        operator.validate(kind)(lambda review: None)
    made: list[tuple[str, str, dict[str, Any]]] = []
    for kind, stored, changed in WITH_AND_WITHOUT_A_SPEC:
        resource, name = resource_of(kind), f"a{len(made)}"
        made.append((f"{resource.api_version}/{resource.plural}", name, changed))
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name, **shown}}
        await admin.create(made[-1][0], {**body, **stored}, namespace)
    async with webhooks_in_force(plane, admin, namespace, operator, replicas=0):
        for where, name, changed in made:
            await until_nobody_changes(admin, where, name, namespace)
            for labels in ({ring.shard: "one"}, {ring.drain: "true"}, {ring.shard: None, ring.drain: None}):
                await admin.patch(where, name, {"metadata": {"labels": labels}}, namespace)
            before = await admin.get(where, name, namespace)
            for change in (changed, *({"metadata": each} for each in IN_METADATA)):
                patch = merge(change, {"metadata": {"labels": {ring.shard: "two"}}})
                with pytest.raises(AdminError, match="failed calling webhook"):
                    await admin.patch(where, name, patch, namespace)
            assert await admin.get(where, name, namespace) == before


async def until_nobody_changes(admin: AdminClient, where: str, name: str, namespace: str) -> None:
    """Return once the webhook is called, though it does not answer."""
    async with asyncio.timeout(60):
        while True:
            try:
                await admin.patch(where, name, {"metadata": {"annotations": {"a": "1"}}}, namespace)
            except AdminError:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("on_failure", ["Fail", "Ignore"])
async def test_a_function_that_fails_and_a_replica_that_is_away_are_dealt_with_by_policy(
    plane: ControlPlane, admin: AdminClient, namespace: str, on_failure: FailurePolicy
) -> None:
    operator = Operator(f"pages-{namespace}", watch_namespace=namespace)

    @operator.mutate(Page)
    def fill_in(review: Review[Page]) -> None:
        review.object.spec.replicas = 2

    @operator.validate(Page, on_failure=on_failure)
    def check(review: Review[Page]) -> None:
        if review.name == "bug":
            raise RuntimeError("no such page")

    async def tried(force: InForce, name: str) -> int:
        try:
            await force.create(name)
        except AdminError as error:
            return error.status
        return 201

    status = 500 if on_failure == "Fail" else 201
    async with webhooks_in_force(plane, admin, namespace, operator) as force:
        assert await tried(force, "bug") == status
        await admin.delete(CONFIGURATIONS[0], operator.name)
        force.balancer.backends.clear()
        assert await force.replicas[0].stop() is ExitCode.OK
        assert await tried(force, "home") == status


async def keep_creating(force: InForce, stopped: asyncio.Event, calls: list[str]) -> None:
    while not stopped.is_set():
        made = await force.create(f"busy-{len(calls)}", dry_run=True)
        assert made["spec"]["replicas"] == 2
        calls.append(made["metadata"]["name"])


async def some_calls(calls: list[Any], count: int = 40) -> None:
    enough = len(calls) + count
    while len(calls) < enough:
        await asyncio.sleep(0.01)


async def test_a_replica_that_stops_loses_no_request(
    plane: ControlPlane, admin: AdminClient, namespace: str, seen: Seen
) -> None:
    stopped, calls = asyncio.Event(), list[str]()
    operator = pages(f"pages-{namespace}", namespace, seen)
    async with webhooks_in_force(plane, admin, namespace, operator, replicas=2) as force, asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(keep_creating(force, stopped, calls))
        for each in list(force.replicas):
            await some_calls(calls)
            ending = each.stop()
            await some_calls(calls)  # endpoints hear of it a little later
            force.balancer.backends.remove(each.port)
            assert await ending is ExitCode.OK
            force.replicas.remove(each)
            await some_calls(calls)
            await force.start()
        await some_calls(calls)
        stopped.set()


@pytest.mark.slow
async def test_a_certificate_rotates_under_load_without_a_failed_request(
    plane: ControlPlane, admin: AdminClient, namespace: str, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new authority that is trusted first, then a serving certificate that it signed."""
    monkeypatch.setattr(secretstore, "POLL_SECONDS", 0.2)
    day = timedelta(days=1)
    lifetimes = Lifetimes(day, day, renew_at=timedelta(seconds=8) / day, bundle_spread=timedelta(seconds=4))
    operator, stopped, calls = pages(f"pages-{namespace}", namespace, seen), asyncio.Event(), list[str]()

    async def signer() -> tuple[str, str]:
        data = (await admin.get("v1/secrets", secret_name(operator.name), namespace))["data"]
        return data["ca.crt"], data["tls.crt"]

    async with webhooks_in_force(plane, admin, namespace, operator, replicas=2, lifetimes=lifetimes) as force:
        changes = {await signer()}
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(keep_creating(force, stopped, calls))
            async with asyncio.timeout(120):
                while len({each[0] for each in changes}) < 2 or len({each[1] for each in changes}) < 3:
                    changes.add(await signer())
                    await some_calls(calls, 5)
            stopped.set()


async def test_a_configuration_that_is_applied_anew_gets_its_authority_again(force: InForce) -> None:
    operator = force.operator
    await force.admin.patch(
        CONFIGURATIONS[1],
        operator.name,
        operator.webhook_configurations(
            force.namespace, client_config={"url": f"https://{LOOPBACK}:{force.replicas[0].port}"}
        )[1],
    )
    # Before, the API server may still call by the old one.
    await force.admin.eventually(CONFIGURATIONS[1], lambda found: is_trusting(found, operator.name))
    await force.in_force()


def is_trusting(configurations: list[dict[str, Any]], name: str) -> bool:
    """Whether the configuration of that name has an authority."""
    clients = [each["webhooks"][0]["clientConfig"] for each in configurations if each["metadata"]["name"] == name]
    return any(each.get("caBundle") for each in clients)


async def test_a_process_outside_of_a_pod_installs_its_configurations_and_takes_them_away(
    plane: ControlPlane, admin: AdminClient, namespace: str, seen: Seen
) -> None:
    operator = pages(f"pages-{namespace}", namespace, seen)
    name = f"{operator.name}-dev"
    serving = Serving(host=LOOPBACK, port=free_port(), address=LOOPBACK)
    kubeconfig = await granted_kubeconfig(plane, namespace, operator, serving)
    manager = operator.manager(webhooks=serving, namespace=namespace, kubeconfig=kubeconfig)
    running = await run(manager, kubeconfig)
    path = f"/apis/admission.example.com/v1/namespaces/{namespace}/pages"
    async with asyncio.timeout(60):
        while not running.done():
            try:
                made = await admin.request("POST", path, body=body("home"), query={"dryRun": "All"})
                if made["spec"].get("replicas") == 2:
                    break
            except AdminError:
                pass
            await asyncio.sleep(0.05)
    for each in CONFIGURATIONS:  # one is made after the other, and the first may be in force before the second is there
        await admin.eventually(each, lambda found: name in {one["metadata"]["name"] for one in found})
    assert await admin.find("v1/secrets", secret_name(operator.name), namespace) is None
    manager.stopping.set()
    assert await running is ExitCode.OK
    for each in CONFIGURATIONS:
        assert await admin.find(each, name) is None
