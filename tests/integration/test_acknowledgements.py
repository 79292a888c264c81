"""What lets go of a draining object, through real admission: its shard's patch, and no manifest put in its place."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localcluster import AdminClient, AdminError, ControlPlane
from shardsdk.kube.clock import SystemClock
from shardsdk.process.health import Address
from shardsdk.protocol.objects import Resource
from shardsdk.serving.server import WebhookServer
from tests.integration.admission import MANIFESTS, SHARDS, WEBHOOKS, Admission, webhook_in_force

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of object; `plain` is a manifest of one, as people keep them."""

    resource: Resource
    path: str
    plain: Object


CONTAINER = {
    "name": "main",
    "image": "example",
    "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"memory": "1Gi"}},
    "env": [{"name": "EMPTY", "value": ""}],
    "command": [],
}
LABELLED = {"labels": {"app": "x"}, "annotations": {"kept": "yes"}}
CHECKS = "things.acknowledgement.example.com"
SORTS = {
    "secret": Sort(
        Resource("", "v1", "secrets", "Secret"), "v1/secrets", {"metadata": LABELLED, "stringData": {"key": "value"}}
    ),
    "service": Sort(
        Resource("", "v1", "services", "Service"),
        "v1/services",
        {"metadata": LABELLED, "spec": {"clusterIP": "None", "ports": [{"port": 80}], "selector": {}}},
    ),
    "pod": Sort(
        Resource("", "v1", "pods", "Pod"), "v1/pods", {"metadata": LABELLED, "spec": {"containers": [CONTAINER]}}
    ),
    "deployment": Sort(
        Resource("apps", "v1", "deployments", "Deployment"),
        "apps/v1/deployments",
        {
            "metadata": LABELLED,
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": LABELLED, "spec": {"containers": [CONTAINER], "volumes": []}},
            },
        },
    ),
    "custom resource": Sort(
        Resource("acknowledgement.example.com", "v1", "things", "Thing"),
        "acknowledgement.example.com/v1/things",
        {
            "apiVersion": "acknowledgement.example.com/v1",
            "kind": "Thing",
            "metadata": LABELLED,
            "spec": {"ratio": 1.0, "small": 1e-7, "large": 12345678901234567, "none": None, "list": [], "map": {}},
        },
    ),
}
TYPE = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": CHECKS},
    "spec": {
        "group": "acknowledgement.example.com",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            field: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                            for field in ("spec", "status")
                        },
                    }
                },
            }
        ],
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    await control_plane.apply(*MANIFESTS)
    types = "apiextensions.k8s.io/v1/customresourcedefinitions"
    async with control_plane.admin() as admin:
        await admin.create(types, TYPE)
        async with asyncio.timeout(120):
            while not established(await admin.get(types, CHECKS)):
                await asyncio.sleep(0.05)
        yield control_plane
        await admin.delete(types, CHECKS)


def established(definition: Object) -> bool:
    # Null until the first condition is written.
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


@pytest_asyncio.fixture
async def admission(installed: ControlPlane, admin: AdminClient, namespace: str) -> AsyncIterator[Admission]:
    alone = [sort.resource for name, sort in SORTS.items() if name != "secret"]
    async with webhook_in_force(installed, admin, namespace, alone=alone) as in_force:
        yield in_force


@dataclass(frozen=True, slots=True)
class Draining:
    """An object on shard-0 that is to be let go of."""

    admission: Admission
    sort: Sort

    @property
    def both(self) -> dict[str, str]:
        labels = self.admission.labels
        return {labels.shard: "shard-0", labels.drain: "true"}

    def manifest(self) -> Object:
        return {**self.sort.plain, "metadata": {**self.sort.plain["metadata"], "name": "x"}}

    async def make(self) -> Object:
        made = self.manifest()
        labels = {**made["metadata"]["labels"], **self.both}
        made["metadata"] = {**made["metadata"], "labels": labels, "finalizers": ["example.com/hold"]}
        with self.admission.behind():
            return await self.admission.admin.create(self.sort.path, made, self.admission.namespace)

    async def patch(self, metadata: Object, **rest: Any) -> Object:
        body = {"metadata": metadata, **rest}
        return await self.admission.admin.patch(self.sort.path, "x", body, self.admission.namespace)

    async def acknowledge(self) -> Object:
        """As a shard does: again, when somebody else's write came first (the control plane's own status, here)."""
        while True:
            found = await self.admission.admin.get(self.sort.path, "x", self.admission.namespace)
            version = found["metadata"]["resourceVersion"]
            try:
                return await self.patch({"resourceVersion": version, "labels": dict.fromkeys(self.both)})
            except AdminError as error:
                if error.status != 409:
                    raise

    async def replace(self, body: Object) -> Object:
        """As `kubectl replace` and GitOps tools do: the manifest, and the version that is there."""
        while True:
            found = await self.admission.admin.get(self.sort.path, "x", self.admission.namespace)
            metadata = {**body["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}
            try:
                return await self.admission.admin.replace(
                    self.sort.path, {**body, "metadata": metadata}, self.admission.namespace
                )
            except AdminError as error:
                if error.status != 409:
                    raise

    async def end(self) -> None:
        await self.patch({"finalizers": None})

    def drains(self, found: Object) -> bool:
        labels: dict[str, str] = found["metadata"]["labels"]
        return self.both.items() <= labels.items()

    def let_go(self, found: Object) -> bool:
        """Nobody's, or (without controlled resources) the next shard's already."""
        labels, shard = found["metadata"]["labels"], self.admission.shard_of(found)
        expected = (None,) if self.sort is SORTS["secret"] else SHARDS
        return self.admission.labels.drain not in labels and shard in expected


@pytest.fixture(params=list(SORTS.values()), ids=list(SORTS))
def draining(request: pytest.FixtureRequest, admission: Admission) -> Draining:
    return Draining(admission, request.param)


async def test_a_shards_patch_lets_go_of_its_object_in_one_request(draining: Draining) -> None:
    await draining.make()
    assert draining.let_go(await draining.acknowledge())
    await draining.end()


async def test_a_manifest_put_in_its_place_leaves_the_object_draining(draining: Draining) -> None:
    await draining.make()
    replaced = await draining.replace(draining.manifest())
    assert draining.drains(replaced)
    assert "finalizers" not in replaced["metadata"]
    assert (draining.admission.namespace, "restored") in draining.admission.outcomes
    assert draining.let_go(await draining.acknowledge())


async def test_an_unchanged_manifest_put_in_its_place_leaves_the_object_draining(draining: Draining) -> None:
    """It takes off the two labels alone; but it does not know when the object was made."""
    made = await draining.make()
    body = draining.manifest()
    body["metadata"] = {**body["metadata"], "finalizers": made["metadata"]["finalizers"]}
    for field in ("data", "spec", "status"):
        if field in made:
            body[field] = made[field]
    body.pop("stringData", None)
    assert draining.drains(await draining.replace(body))
    await draining.end()


async def test_a_write_that_changes_more_than_the_labels_leaves_the_object_draining(draining: Draining) -> None:
    await draining.make()
    both = dict.fromkeys(draining.both)
    assert draining.drains(await draining.patch({"labels": {**both, "more": "yes"}}))
    assert draining.drains(await draining.patch({"labels": both, "finalizers": None}))
    assert draining.drains(await draining.patch({"labels": both, "annotations": {"kept": None}}))
    assert (draining.admission.namespace, "not_acknowledged") in draining.admission.outcomes


async def test_with_another_webhook_that_notes_every_write_drains_are_acknowledged_at_once(
    admission: Admission,
) -> None:
    draining = Draining(admission, SORTS["deployment"])
    async with other_webhook(admission, note_writes):
        made = await draining.make()
        answer = await draining.acknowledge()
        assert answer["metadata"]["annotations"]["written"] != made["metadata"]["annotations"]["written"]
        assert draining.let_go(answer)
        await draining.end()


async def test_what_another_webhook_changes_for_good_takes_a_second_acknowledgement(admission: Admission) -> None:
    draining = Draining(admission, SORTS["deployment"])
    await draining.make()
    async with other_webhook(admission, mark):
        first = await draining.acknowledge()
        assert draining.drains(first)
        assert first["metadata"]["labels"]["marked"] == "yes"
        assert draining.let_go(await draining.acknowledge())
        await draining.end()


def note_writes(asked: Object, number: int) -> list[Object]:
    annotations = {**asked["object"]["metadata"].get("annotations", {}), "written": f"write {number}"}
    return [{"op": "add", "path": "/metadata/annotations", "value": annotations}]


def mark(asked: Object, number: int) -> list[Object]:
    return [{"op": "add", "path": "/metadata/labels/marked", "value": "yes"}]


@asynccontextmanager
async def other_webhook(admission: Admission, change: Any) -> AsyncIterator[None]:
    """Somebody else's webhook over Deployments, called before ours, since its name comes before."""
    calls: list[Object] = []

    async def answer(request: Request) -> Response:
        asked = (await request.json())["request"]
        calls.append(asked)
        patch = b64encode(json.dumps(change(asked, len(calls))).encode()).decode()
        response = {"uid": asked["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
        return JSONResponse({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    app: Any = Starlette(routes=[Route("/change", answer, methods=["POST"])])
    server = WebhookServer(app, admission.published, clock=SystemClock(), address=Address("127.0.0.1", 0))
    server.bind()
    running = asyncio.create_task(server.run())
    ours = admission.config["webhooks"][0]
    name = f"another-{admission.namespace}"
    await admission.admin.create(
        WEBHOOKS,
        {
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": "another.example.com",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {**ours["clientConfig"], "url": f"https://127.0.0.1:{server.port}/change"},
                    "failurePolicy": "Fail",
                    "namespaceSelector": ours["namespaceSelector"],
                    "rules": [
                        {
                            "apiGroups": ["apps"],
                            "apiVersions": ["*"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": ["deployments"],
                        }
                    ],
                    "sideEffects": "None",
                }
            ],
        },
    )
    try:
        probe = {**SORTS["deployment"].plain, "metadata": {"name": "probe", "labels": {"app": "x"}}}
        path = f"/apis/apps/v1/namespaces/{admission.namespace}/deployments"
        async with asyncio.timeout(120):
            while not calls:
                await admission.admin.request("POST", path, body=probe, query={"dryRun": "All"})
        yield
    finally:
        await admission.admin.delete(WEBHOOKS, name)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.close()
