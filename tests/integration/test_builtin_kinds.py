"""Kubernetes' own kinds against a real API server: what it serves is what they were written from, and they fit it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from docsite.builtin_kinds import FOLDER, fetch, render
from localcluster import AdminClient, AdminError
from shardsdk import kinds
from shardsdk.kinds import (
    ConfigMap,
    Container,
    CrossVersionObjectReference,
    Deployment,
    DeploymentSpec,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
    HTTPIngressPath,
    HTTPIngressRuleValue,
    Ingress,
    IngressBackend,
    IngressRule,
    IngressServiceBackend,
    IngressSpec,
    Kind,
    LabelSelector,
    NetworkPolicy,
    NetworkPolicySpec,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodSpec,
    PodTemplateSpec,
    PolicyRule,
    ResourceRequirements,
    Role,
    RoleBinding,
    RoleRef,
    Secret,
    Service,
    ServiceBackendPort,
    ServicePort,
    ServiceSpec,
    Subject,
    VolumeResourceRequirements,
    body_of,
    builtin,
    resource_of,
)
from shardsdk.kube.answers import Target
from shardsdk.kube.api import Unfit
from shardsdk.kube.decoding import codec_of
from shardsdk.protocol.objects import ObjectMeta

KINDS = [each for name in builtin.__all__ if issubclass(each := getattr(kinds, name), Kind)]
SELECTOR = LabelSelector(match_labels={"app": "web"})


def children() -> list[Kind]:
    """What an operator writes."""
    limits = ResourceRequirements(limits={"cpu": "100m", "memory": "16Mi"})
    pod = PodSpec(containers=[Container(name="web", image="web:1", resources=limits)])
    template = PodTemplateSpec(metadata=ObjectMeta(labels={"app": "web"}), spec=pod)
    backend = IngressBackend(service=IngressServiceBackend(name="web", port=ServiceBackendPort(number=80)))
    path = HTTPIngressPath(path="/", path_type="Prefix", backend=backend)
    storage = VolumeResourceRequirements(requests={"storage": "1Gi"})
    target = CrossVersionObjectReference(api_version="apps/v1", kind="Deployment", name="web")
    return [
        ConfigMap("web", data={"a": "b"}, binary_data={"c": b"\0"}),
        Secret("web", data={"key": b"\0a"}, type="Opaque"),
        Service("web", spec=ServiceSpec(selector={"app": "web"}, ports=[ServicePort(port=80, target_port="http")])),
        Deployment("web", spec=DeploymentSpec(selector=SELECTOR, template=template, replicas=2)),
        PersistentVolumeClaim("web", spec=PersistentVolumeClaimSpec(access_modes=["ReadWriteOnce"], resources=storage)),
        Ingress("web", spec=IngressSpec(rules=[IngressRule(http=HTTPIngressRuleValue(paths=[path]))])),
        NetworkPolicy("web", spec=NetworkPolicySpec(pod_selector=SELECTOR, policy_types=["Ingress"])),
        PodDisruptionBudget("web", spec=PodDisruptionBudgetSpec(max_unavailable="50%", selector=SELECTOR)),
        Role("web", rules=[PolicyRule(api_groups=[""], resources=["secrets"], verbs=["get"])]),
        RoleBinding(
            "web",
            role_ref=RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="web"),
            subjects=[Subject(kind="ServiceAccount", name="web", namespace="default")],
        ),
        HorizontalPodAutoscaler("web", spec=HorizontalPodAutoscalerSpec(max_replicas=3, scale_target_ref=target)),
    ]


def committed() -> dict[str, str]:
    return {path.name: path.read_text() for path in FOLDER.glob("*.py")}


def path_of(kind: type[Kind]) -> str:
    resource = resource_of(kind)
    return f"{resource.api_version}/{resource.plural}"


async def test_the_committed_classes_are_those_that_the_api_server_describes(admin: AdminClient) -> None:
    assert committed() == render(await fetch(admin)), "run `make kinds`"


@pytest.mark.parametrize("thing", children(), ids=lambda thing: type(thing).__name__)
async def test_what_is_written_is_taken_whole_and_read_back(admin: AdminClient, namespace: str, thing: Kind) -> None:
    body = body_of(thing)
    await admin.request(
        "POST",
        resource_of(thing).path(namespace) + "?fieldValidation=Strict",
        body=body,
    )
    read = codec_of(type(thing)).decode(
        Target("get"), msgspec.json.encode(await admin.get(path_of(type(thing)), "web", namespace))
    )
    assert read.metadata.uid
    assert missing(body, body_of(read)) == []


async def test_a_misspelt_field_could_not_hide_from_strict_validation(admin: AdminClient, namespace: str) -> None:
    body = body_of(ConfigMap("web")) | {"dat": {}}
    with pytest.raises(AdminError, match='unknown field "dat"'):
        await admin.request("POST", resource_of(ConfigMap).path(namespace) + "?fieldValidation=Strict", body=body)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
async def test_everything_that_is_there_fits(admin: AdminClient, kind: type[Kind]) -> None:
    """The API server's own roles, some of them without rules, its leases, its namespaces."""
    left_out: list[Unfit] = []
    answer = await admin.request("GET", resource_of(kind).path())
    page = codec_of(kind).decode_page(Target("list"), msgspec.json.encode(answer), left_out.append)
    assert left_out == []
    assert len(page.items or ()) == len(answer["items"])


def missing(sent: Any, found: Any, place: str = "$") -> list[str]:
    """What was sent and did not come back."""
    if isinstance(sent, dict):
        return [
            each
            for name, value in sent.items()
            for each in (missing(value, found[name], f"{place}.{name}") if name in found else [f"{place}.{name}"])
        ]
    if isinstance(sent, list):
        pairs = enumerate(zip(sent, found, strict=True))
        return [each for number, pair in pairs for each in missing(*pair, f"{place}[{number}]")]
    return [] if sent == found else [f"{place}: {sent!r}, {found!r}"]
