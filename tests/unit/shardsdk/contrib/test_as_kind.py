"""Objects of the kubernetes package as objects of a kind, and back."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from msgspec import field

from shardsdk import Context, Model, Operator, Resource
from shardsdk.contrib.kubernetes import as_kind
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import ConfigMap, Deployment, Event, Kind, Lease, Secret, Service, body_of
from shardsdk.testing import Rig, drive

client: Any = pytest.importorskip("kubernetes.client")


def deployment(**spec: Any) -> Any:
    labels = {"app": "home"}
    port = client.V1ContainerPort(container_port=80, protocol="TCP")
    resources = client.V1ResourceRequirements(requests={"cpu": "100m"})
    container = client.V1Container(name="page", image="nginx:1", ports=[port], resources=resources, stdin=False)
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
    )
    return client.V1Deployment(
        metadata=client.V1ObjectMeta(name="home", labels=labels),
        spec=client.V1DeploymentSpec(
            selector=client.V1LabelSelector(match_labels=labels), template=template, replicas=2, **spec
        ),
    )


def test_nothing_is_lost_on_the_way() -> None:
    theirs = deployment(strategy=client.V1DeploymentStrategy(type="Recreate"), min_ready_seconds=0)
    made = as_kind(Deployment, theirs)
    assert made.spec.replicas == 2
    assert made.spec.template.spec is not None
    assert made.spec.template.spec.containers[0].image == "nginx:1"

    sent = theirs.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert body_of(made) == {"apiVersion": "apps/v1", "kind": "Deployment", **sent}
    assert client.V1Deployment.from_dict(body_of(made)).spec == theirs.spec


def test_what_is_base64_there_is_bytes_here() -> None:
    data = {"key": base64.b64encode(b"secret").decode()}
    theirs = client.V1Secret(api_version="v1", kind="Secret", metadata=client.V1ObjectMeta(name="a"), data=data)
    assert as_kind(Secret, theirs) == Secret("a", data={"key": b"secret"})


def test_it_is_applied_like_any_child() -> None:
    operator = Operator("pods")

    @operator.reconcile(ConfigMap, owns=[Deployment])
    async def run(ctx: Context[ConfigMap]) -> None:
        await ctx.apply(as_kind(Deployment, deployment()))

    async def story(rig: Rig) -> None:
        assert rig.get(Deployment, "home").spec.replicas == 2
        rig.patch(ConfigMap, "home", {"data": {"a": "b"}})
        await rig.settle()

    rig = drive(operator, [ConfigMap("home")], story)
    assert [each.resource.plural for each in rig.sent] == ["deployments"], "the second apply changes nothing"


class Size(Model):
    amount: int = 0


class Small(Kind):
    """What somebody has written who needs no more of a Deployment."""

    resource = Resource("apps", "v1", "deployments", "Deployment")
    spec: Size = field(default_factory=Size)


@pytest.mark.parametrize(
    ("kind", "theirs", "message"),
    [
        (ConfigMap, {"api_version": "apps/v1", "kind": "Deployment"}, "apps/v1 Deployment is no ConfigMap"),
        (Small, {}, r"Small does not know spec\.replicas, spec\.selector, spec\.template, which would be lost"),
    ],
)
def test_what_does_not_fit_is_refused(kind: type[Kind], theirs: dict[str, str], message: str) -> None:
    made = deployment()
    for name, value in theirs.items():
        setattr(made, name, value)
    with pytest.raises(ConfigurationError, match=message):
        as_kind(kind, made)


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [(ConfigMap, "V1Secret"), (Service, "V1Deployment"), (Secret, "CoreV1Event"), (Lease, "V1alpha2LeaseCandidate")],
)
def test_an_object_of_another_kind_is_refused_though_it_does_not_say_which_it_is(kind: type[Kind], theirs: str) -> None:
    empty = getattr(client, theirs).model_construct(metadata=client.V1ObjectMeta(name="a"))
    with pytest.raises(ConfigurationError, match=f"is no {kind.__name__} \\("):
        as_kind(kind, empty)


def test_a_class_of_the_package_is_for_one_kind() -> None:
    event = client.CoreV1Event(metadata=client.V1ObjectMeta(name="a"), involved_object=client.V1ObjectReference())
    assert as_kind(Event, event).metadata.name == "a"


def test_a_value_that_does_not_fit_is_refused_with_its_place() -> None:
    class Counted(Kind):
        resource = Resource("", "v1", "configmaps", "ConfigMap")
        data: dict[str, int] = {}

    with pytest.raises(ConfigurationError, match=r"V1ConfigMap is no .*Counted: .*\$\.data"):
        as_kind(Counted, client.V1ConfigMap(data={"a": "b"}))
