"""Kubernetes' own kinds, typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shardsdk import Resource, kinds
from shardsdk.kinds import (
    ConfigMap,
    Container,
    ContainerPort,
    DaemonSetStatus,
    Deployment,
    DeploymentSpec,
    DeploymentStatus,
    EnvVar,
    EnvVarSource,
    Kind,
    LabelSelector,
    LimitRange,
    LimitRangeItem,
    LimitRangeSpec,
    Model,
    ObjectFieldSelector,
    PodSpec,
    PodTemplateSpec,
    Role,
    Secret,
    Service,
    ServicePort,
    ServiceSpec,
    body_of,
    builtin,
    resource_of,
)
from shardsdk.kube.answers import Target
from shardsdk.kube.api import WatchKind
from shardsdk.kube.decoding import codec_of
from shardsdk.kube.models import check_model
from shardsdk.protocol.objects import ObjectMeta

OWN = [getattr(kinds, name) for name in builtin.__all__]
KINDS = [each for each in OWN if issubclass(each, Kind)]
LIMITS = Target("get", "", "limitranges")
ROLES = Target("list", "rbac.authorization.k8s.io", "roles")


def deployment() -> Deployment:
    labels = {"app": "web"}
    env = EnvVar(name="IP", value_from=EnvVarSource(field_ref=ObjectFieldSelector(field_path="status.podIP")))
    pod = PodSpec(
        containers=[Container(name="web", image="web:1", ports=[ContainerPort(container_port=80)], env=[env])]
    )
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=pod)
    spec = DeploymentSpec(selector=LabelSelector(match_labels=labels), template=template)
    return Deployment("web", spec=spec)


def test_a_deployment_is_sent_as_people_would_write_it() -> None:
    labels = {"app": "web"}
    container = {
        "name": "web",
        "image": "web:1",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    }
    assert body_of(deployment()) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def test_names_that_are_no_camel_case_are_sent_as_kubernetes_has_them() -> None:
    service = Service("a", spec=ServiceSpec(cluster_ip="None", ports=[ServicePort(port=80, target_port="http")]))
    assert body_of(service)["spec"] == {"clusterIP": "None", "ports": [{"port": 80, "targetPort": "http"}]}


def test_bytes_are_base64_on_the_wire() -> None:
    assert body_of(Secret("a", data={"key": b"\0a"}))["data"] == {"key": "AGE="}
    assert msgspec.convert({"data": {"key": "AGE="}}, Secret).data == {"key": b"\0a"}


def test_what_nobody_has_written_yet_has_its_zero() -> None:
    assert ConfigMap().data == {}
    assert deployment().status == DeploymentStatus()
    assert deployment().status.ready_replicas is None
    assert DaemonSetStatus().number_ready == 0


def test_null_is_nothing_as_servers_written_in_go_mean_it() -> None:
    body = msgspec.json.encode({"metadata": {"name": "a", "resourceVersion": "7"}, "rules": None})
    assert codec_of(Role).decode(ROLES, body).rules == []
    page = msgspec.json.encode({"metadata": {}, "items": [{"metadata": {"name": "a"}, "rules": None}]})
    assert [role.rules for role in codec_of(Role).decode_page(ROLES, page).items or ()] == [[]]
    event = codec_of(Role).decode_line(ROLES, b'{"type": "MODIFIED", "object": ' + body + b"}")
    assert event is not None
    assert (event.kind, event.object, event.resource_version) == (
        WatchKind.MODIFIED,
        Role(ObjectMeta(name="a", resource_version="7")),
        "7",
    )


def test_null_is_an_empty_list_where_there_has_to_be_one() -> None:
    body = b'{"metadata": {"name": "a", "labels": null}, "spec": {"limits": null}}'
    found = codec_of(LimitRange).decode(LIMITS, body)
    assert found.spec is not None
    assert found.spec.limits == []
    filled = b'{"metadata": {"name": "a"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}, "min": null}]}}'
    assert codec_of(LimitRange).decode(LIMITS, filled).spec == LimitRangeSpec(
        limits=[LimitRangeItem(type="Pod", max={"cpu": "1"})]
    )


def test_what_does_not_fit_is_left_out_with_or_without_nulls() -> None:
    event = codec_of(Role).decode_line(
        ROLES, b'{"type": "ADDED", "object": {"metadata": {"name": "a"}, "rules": 3, "aggregationRule": null}}'
    )
    assert event is not None
    assert event.unfit is not None
    assert event.unfit.metadata.name == "a"
    assert "Expected `array`, got `int` - at `$.object.rules`" in event.unfit.error


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_each_kind_can_be_what_a_controller_watches(kind: Any) -> None:
    check_model(kind, resource_of(kind))
    assert resource_of(kind).kind == kind.__name__
    assert codec_of(kind).nulls_are_absent


def test_kinds_of_no_namespace_say_so() -> None:
    assert {kind.__name__ for kind in KINDS if not resource_of(kind).namespaced} == {
        *("ClusterRole", "ClusterRoleBinding", "IngressClass", "MutatingWebhookConfiguration", "Namespace", "Node"),
        *("PersistentVolume", "PriorityClass", "StorageClass", "ValidatingWebhookConfiguration", "VolumeAttachment"),
    }
    assert resource_of(Role) == Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")


def test_every_class_has_fields_and_a_docstring() -> None:
    assert len(KINDS) == 35
    assert all(issubclass(each, Model) and each.__doc__ and each.__struct_fields__ for each in OWN)


def test_no_name_is_that_of_a_module_whose_import_would_hide_it() -> None:
    modules = {path.stem for path in Path(kinds.__file__).parent.iterdir()}
    assert modules & set(kinds.__all__) == set()


def test_a_program_pays_for_the_kinds_that_it_uses() -> None:
    code = "import sys; from shardsdk.kinds import ConfigMap, Ingress, Service; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.rpartition(".")[2] for name in done.stdout.split() if name.startswith("shardsdk.kinds.builtin.")}
    assert loaded == {"configmap", "ingress", "service", "shared"}
