"""The example of an operator, and its permissions, on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from examples.website import Website, WebsiteSpec, operator
from localcluster import AdminClient, AdminError, ControlPlane
from localcluster.admin import path_of
from shardsdk import Operator
from shardsdk.admission import Serving
from shardsdk.kinds import ConfigMap, Secret, body_of, crd_of
from shardsdk.kube.api import Operation
from shardsdk.kube.client import Client
from shardsdk.process.process import ExitCode
from shardsdk.protocol.labels import parse_ring_name

WEBSITES: Final = "example.com/v1/websites"
CONFIGMAPS: Final = "v1/configmaps"
DEPLOYMENTS: Final = "apps/v1/deployments"
SECRETS: Final = "v1/secrets"
SERVICES: Final = "v1/services"
PODS: Final = "v1/pods"
EVENTS: Final = "v1/events"
Object = dict[str, Any]


class Stage:
    """A namespace, and the operator on it."""

    def __init__(self, plane: ControlPlane, admin: AdminClient, namespace: str, sent: list[Operation[Any]]) -> None:
        self.plane = plane
        self.admin = admin
        self.namespace = namespace
        self.sent = sent

    @asynccontextmanager
    async def running(self, operator: Operator, **settings: Any) -> AsyncIterator[None]:
        manager = operator.manager(
            namespace=self.namespace,
            watch_namespace=self.namespace,
            kubeconfig=str(self.plane.admin_kubeconfig),
            **settings,
        )
        process = asyncio.create_task(manager.run_async())
        try:
            yield
        finally:
            manager.stopping.set()
            code = await process
        assert code is ExitCode.OK

    async def website(self, html: str = "<h1>hi</h1>", replicas: int = 1, **metadata: Any) -> None:
        body = body_of(Website("home", WebsiteSpec(html, replicas)))
        await self.admin.create(WEBSITES, {**body, "metadata": {"name": "home", **metadata}}, self.namespace)

    async def until(self, resource: str, holds: Callable[[Object], object], name: str = "home") -> Object:
        def look(objects: list[Object]) -> Object | None:
            return next((each for each in objects if each["metadata"]["name"] == name and holds(each)), None)

        return await self.admin.eventually(resource, look, self.namespace)

    async def until_gone(self, resource: str) -> None:
        await self.admin.eventually(resource, lambda objects: not objects, self.namespace)

    async def until_ready(self, status: str) -> Object:
        return await self.until(
            WEBSITES, lambda home: [each["status"] for each in home.get("status", {}).get("conditions", ())] == [status]
        )

    async def until_refused(self, changes: Object) -> str:
        """Until nobody may change the Website like this any more; returns what is said then."""
        path, merge = path_of(WEBSITES, self.namespace, "home"), "application/merge-patch+json"
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.admin.request("PATCH", path, body=changes, query={"dryRun": "All"}, content_type=merge)
                except AdminError as error:
                    return str(error)
                await asyncio.sleep(0.05)

    async def until_taken(self, changes: Object) -> None:
        """Change the Website like this, once the API server knows that a webhook is gone."""
        async with asyncio.timeout(60):
            while True:
                with suppress(AdminError):
                    await self.admin.patch(WEBSITES, "home", changes, self.namespace)
                    return
                await asyncio.sleep(0.05)

    async def set_ready(self, ready: bool) -> None:
        """What a kubelet would say of the pods, had they a node; the controllers of Kubernetes say the rest."""
        pods = await self.admin.eventually(PODS, lambda pods: pods, self.namespace)
        for pod in pods:
            status = {"status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}
            await self.admin.patch(PODS, pod["metadata"]["name"], status, self.namespace, subresource="status")

    def applied(self, plural: str) -> int:
        return sum(each.resource.plural == plural and each.kind.name == "APPLY" for each in self.sent)


@pytest_asyncio.fixture
async def stage(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Stage:
    await control_plane.apply(stdin=yaml.safe_dump(crd_of(Website)))
    sent: list[Operation[Any]] = []
    send = Client.send

    async def noting(self: Client, operation: Operation[Any]) -> Any:
        sent.append(operation)
        return await send(self, operation)

    monkeypatch.setattr(Client, "send", noting)
    return Stage(control_plane, admin, namespace, sent)


async def test_a_website_is_made_kept_and_taken_down(stage: Stage) -> None:
    async with stage.running(operator):
        await stage.website(replicas=2)
        home = await stage.until_ready("False")
        uid = home["metadata"]["uid"]
        assert home["metadata"]["finalizers"] == ["example.com/websites"]
        for resource in (CONFIGMAPS, DEPLOYMENTS, SERVICES):
            made = await stage.until(resource, lambda each: True)
            assert [each["uid"] for each in made["metadata"]["ownerReferences"]] == [uid]

        await stage.set_ready(True)
        home = await stage.until_ready("True")
        assert home["status"]["readyReplicas"] >= 1
        assert home["status"]["conditions"][0]["observedGeneration"] == 1

        await stage.admin.patch(CONFIGMAPS, "home", {"data": {"index.html": "mine"}}, stage.namespace)
        await stage.until(CONFIGMAPS, lambda page: page["data"] == {"index.html": "<h1>hi</h1>"})
        await stage.admin.delete(SERVICES, "home", stage.namespace)
        await stage.until(
            SERVICES, lambda service: [each["uid"] for each in service["metadata"]["ownerReferences"]] == [uid]
        )

        await stage.admin.delete(WEBSITES, "home", stage.namespace)
        await stage.until_gone(WEBSITES)
        await stage.admin.eventually(
            EVENTS, lambda events: any(each["reason"] == "TakenDown" for each in events), stage.namespace
        )


async def test_what_its_schema_or_its_function_forbids_is_not_stored(stage: Stage) -> None:
    async with stage.running(operator, webhooks=Serving.reached_at("127.0.0.1")):
        with pytest.raises(AdminError, match=r"spec\.replicas: Invalid value: 6"):
            await stage.website(replicas=6)
        await stage.website()
        said = await stage.until_refused({"spec": {"html": " "}})
        assert "spec.html" in said
        assert "there is nothing on the page" in said
        await stage.admin.patch(WEBSITES, "home", {"spec": {"html": "new"}}, stage.namespace)
        await stage.until(CONFIGMAPS, lambda page: page["data"] == {"index.html": "new"})
    # Nobody is asked any more, so nothing is kept waiting or refused.
    await stage.until_taken({"spec": {"html": " "}, "metadata": {"finalizers": None}})


async def test_at_rest_nothing_is_applied(stage: Stage) -> None:
    """Though others change a child's status all the time."""
    async with stage.running(operator):
        await stage.website()
        await stage.until_ready("False")
        before = stage.applied("configmaps"), stage.applied("services")
        for ready in (True, False, True):
            await stage.set_ready(ready)
            await stage.until_ready(str(ready))
        assert (stage.applied("configmaps"), stage.applied("services")) == before == (1, 1)


async def test_what_is_no_longer_applied_is_pruned(stage: Stage) -> None:
    pruning = Operator("pages")

    @pruning.reconcile(Website, owns=[ConfigMap], prune=True)
    async def pages(ctx: Any) -> None:
        for name in ctx.object.spec.html.split():
            await ctx.apply(ConfigMap(name, data={"a": "b"}))

    async with stage.running(pruning):
        await stage.website("one two three")
        await stage.until(CONFIGMAPS, lambda page: True, "three")
        await stage.admin.patch(WEBSITES, "home", {"spec": {"html": "two"}}, stage.namespace)
        await stage.admin.eventually(
            CONFIGMAPS,
            lambda pages: {each["metadata"]["name"] for each in pages} == {"two"},
            stage.namespace,
        )


async def test_a_text_of_a_secret_that_is_no_longer_applied_is_gone(stage: Stage) -> None:
    credentials = Operator("credentials")

    @credentials.reconcile(Website, owns=[Secret])
    async def keep(ctx: Any) -> None:
        await ctx.apply(Secret(string_data=dict.fromkeys(ctx.object.spec.html.split(), "x")))

    async with stage.running(credentials):
        await stage.website("user old-token")
        await stage.until(SECRETS, lambda each: each["data"].keys() == {"user", "old-token"})
        await stage.admin.patch(WEBSITES, "home", {"spec": {"html": "user new"}}, stage.namespace)
        await stage.until(SECRETS, lambda each: "new" in each["data"])
        left = await stage.admin.get(SECRETS, "home", stage.namespace)
        assert left["data"] == {"user": "eA==", "new": "eA=="}


async def test_of_a_child_that_a_timer_applies_as_well_what_the_reconcile_has_applied_is_pruned(stage: Stage) -> None:
    pruning = Operator("pages")

    @pruning.reconcile(Website, owns=[ConfigMap], prune=True)
    async def page(ctx: Any) -> None:
        if ctx.object.spec.html != "none":
            await ctx.apply(ConfigMap(data={"page": ctx.object.spec.html}))

    @page.timer(every=1)
    async def measure(ctx: Any) -> None:
        await ctx.apply(ConfigMap(data={"measured": "7"}))

    async with stage.running(pruning):
        await stage.website()
        there = await stage.until(CONFIGMAPS, lambda each: each["data"].keys() == {"page", "measured"})
        await stage.admin.patch(WEBSITES, "home", {"spec": {"html": "none"}}, stage.namespace)
        left = await stage.until(CONFIGMAPS, lambda each: each["data"].keys() == {"measured"})
        assert left["metadata"]["uid"] == there["metadata"]["uid"]
        assert left["metadata"]["ownerReferences"] == there["metadata"]["ownerReferences"]


async def test_who_has_changed_the_key_of_an_entry_is_named_when_an_apply_is_refused_for_it(stage: Stage) -> None:
    async with stage.running(operator):
        await stage.website()
        await stage.until(SERVICES, lambda each: True)
        by_hand = [{"op": "replace", "path": "/spec/ports/0/port", "value": 99}]
        await stage.admin.request(
            "PATCH", path_of(SERVICES, stage.namespace, "home"), body=by_hand, query={"fieldManager": "kubectl-edit"},
            content_type="application/json-patch+json",
        )  # fmt: skip
        (said,) = await stage.admin.eventually(
            EVENTS, lambda events: [each["message"] for each in events if "Invalid" in each["message"]], stage.namespace
        )
        assert "spec.ports[0].name: Required value" in said
        assert said.endswith(
            " — kubectl-edit has set spec.ports[port=99,protocol=TCP], and what is applied stands beside it: take it"
            " out, or delete the Service"
        )
        await stage.admin.delete(SERVICES, "home", stage.namespace)
        await stage.until(SERVICES, lambda each: [port["port"] for port in each["spec"]["ports"]] == [80])


async def test_of_two_that_apply_one_child_one_has_it_and_the_other_says_whose_it_is(stage: Stage) -> None:
    sharing = Operator("sharing")

    @sharing.reconcile(Website, owns=[ConfigMap])
    async def page(ctx: Any) -> None:
        await ctx.apply(ConfigMap("shared", data={"of": ctx.name}))

    async with stage.running(sharing):
        await stage.website()
        await stage.until(CONFIGMAPS, lambda page: True, "shared")
        await stage.admin.create(WEBSITES, body_of(Website("other", WebsiteSpec("<h1>hi</h1>", 1))), stage.namespace)
        (said,) = await stage.admin.eventually(
            EVENTS,
            lambda events: [each["message"] for each in events if "AlreadyOwned" in each["message"]],
            stage.namespace,
        )
        assert "ConfigMap shared cannot be controlled by Website other: Website home controls it already" in said
        await stage.until(CONFIGMAPS, lambda page: page["data"] == {"of": "home"}, "shared")
        assert stage.applied("configmaps") == 1


async def test_sharded_it_is_the_same_but_for_the_label(stage: Stage) -> None:
    sharded = Operator("websites", sharded=True)
    sharded.reconcile(Website, owns=operator._reconcilers[0].declared.owns)(operator._reconcilers[0].function)
    label = {parse_ring_name("websites").shard: "shard-1"}

    async with stage.running(sharded, shard="shard-1"):
        await stage.website(labels=label)
        await stage.until_ready("False")
        for resource in (CONFIGMAPS, DEPLOYMENTS, SERVICES):
            made = await stage.until(resource, lambda each: True)
            assert made["metadata"]["labels"] == label
