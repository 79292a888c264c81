"""CRDs whose specs are made of Kubernetes' own parts, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from localcluster import AdminClient, AdminError, ControlPlane
from shardsdk import CustomResource, Model, ObjectMeta
from shardsdk.kinds import Container, Kind, PodSpec, PodTemplateSpec, Quantity, body_of, crd_of, resource_of
from tests.integration.served import served

GROUP = "pods.example.com"


class RunnerSpec(Model):
    template: PodTemplateSpec
    size: Quantity = "1Gi"


class Runner(CustomResource[RunnerSpec], group=GROUP, version="v1"):
    """Runs a pod."""


@cache
def foreign() -> tuple[Any, Any]:
    """A class of the kubernetes package, and a kind whose spec it is."""
    # Here, because each worker of the tests imports this file: the package and the schema of the class take a second.
    from kubernetes.aio.client import V1PodSpec

    class Foreign(CustomResource[V1PodSpec], group=GROUP, version="v1"):
        pass

    return V1PodSpec, Foreign


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    async with served(control_plane, crd_of(Runner), crd_of(foreign()[1])):
        yield control_plane


async def put(admin: AdminClient, thing: Kind, namespace: str) -> Any:
    resource = resource_of(thing)
    return await admin.create(f"{resource.api_version}/{resource.plural}", body_of(thing), namespace)


def runner(name: str, size: Quantity) -> Runner:
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels={"a": "b"}, annotations={"c": "d"}),
        spec=PodSpec(containers=[Container(name="web", image="web:1")], node_selector={"e": "f"}),
    )
    return Runner(name, RunnerSpec(template, size))


@pytest.mark.parametrize("size", ["100m", "1.5Gi", 3, "1e3"], ids=str)
async def test_a_spec_holds_a_pods_template_and_quantities(
    plane: ControlPlane, admin: AdminClient, namespace: str, size: Quantity
) -> None:
    sent = runner("a", size)
    assert msgspec.convert(await put(admin, sent, namespace), Runner).spec == sent.spec


async def test_what_is_no_quantity_is_refused(plane: ControlPlane, admin: AdminClient, namespace: str) -> None:
    with pytest.raises(AdminError, match=r"spec\.size: Invalid value"):
        await put(admin, runner("a", "1 GB"), namespace)


async def test_a_class_of_the_kubernetes_package_is_a_spec(
    plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    pod_spec, kind = foreign()
    spec = pod_spec(containers=[{"name": "web", "image": "web:1", "ports": [{"containerPort": 80}]}])
    made = await put(admin, kind("a", spec), namespace)
    assert pod_spec.from_dict(made["spec"]) == spec
    body = body_of(kind("b", spec))
    del body["spec"]["containers"][0]["name"]
    with pytest.raises(AdminError, match=r"spec\.containers\[0\]\.name: Required value"):
        await admin.create(f"{GROUP}/v1/foreigns", body, namespace)
