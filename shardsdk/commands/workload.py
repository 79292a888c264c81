"""The pods of an operator: two replicas of which one leads, or the shards of a ring; with what keeps them running.

They fit the Pod Security Standard "restricted", and find their own namespace, name and UID as a shard needs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.admission.configuration import PORT, PORT_NAME, labels_of
from shardsdk.rbac import Manifest
from shardsdk.serving.certificate_watcher import DEFAULT_DIRECTORY

HEALTH_PORT: Final = 8081
METRICS_PORT: Final = 8080
#: The user of the image that `shardsdk new` describes; any other image must let this one read it.
USER: Final = 65532
#: For temporary files; below it is where a certificate of somebody else's making is looked for.
TMP: Final = "/tmp"
#: A manager gives running reconciles 25 s to end.
GRACE_SECONDS: Final = 30
#: Of these, for what comes after whatever is given time to end: what does not is cancelled, and leases are released.
END_SECONDS: Final = 5
#: Of how many replicas it consists unless somebody says otherwise: a leader and one that waits, or shards.
ELECTED_REPLICAS: Final = 2
SHARDS: Final = 3
RESOURCES: Final[Mapping[str, Any]] = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}


@dataclass(frozen=True, slots=True)
class Pods:
    """What runs: `image`, called `name` in `namespace`, `replicas` times; `args` are for the image's entry point."""

    name: str
    namespace: str
    image: str
    replicas: int | str
    args: Sequence[str] = ()
    sharded: bool = False
    stateful: bool = False
    webhooks: bool = False
    grace_seconds: int = GRACE_SECONDS
    #: The Secret with a certificate for webhooks of somebody else's making; empty: they make their own.
    certificate: str = ""


def workload(pods: Pods) -> list[Manifest]:
    """A Deployment or StatefulSet, and what goes with it."""
    metadata = {"name": pods.name, "namespace": pods.namespace, "labels": labels_of(pods.name)}
    selector = {"matchLabels": labels_of(pods.name)}
    made: list[Manifest] = [] if not pods.stateful else [_service(pods, metadata)]
    made.append(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet" if pods.stateful else "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": pods.replicas,
                "revisionHistoryLimit": 3,
                "selector": selector,
                **_rollout(pods),
                "template": {"metadata": {"labels": labels_of(pods.name)}, "spec": _pod(pods)},
            },
        }
    )
    disruption = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": selector}
    made.append({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": disruption})
    return [*made, _leases_first(pods)] if pods.sharded else made


def _service(pods: Pods, metadata: Mapping[str, Any]) -> Manifest:
    """A StatefulSet has to name one."""
    spec = {"clusterIP": "None", "selector": labels_of(pods.name)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": dict(metadata), "spec": spec}


def _rollout(pods: Pods) -> dict[str, Any]:
    if pods.stateful:
        # Shards do not wait for one another.
        return {"serviceName": pods.name, "podManagementPolicy": "Parallel"}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}


def _pod(pods: Pods) -> dict[str, Any]:
    return {
        "serviceAccountName": pods.name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": pods.grace_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels_of(pods.name)},
            }
        ],
        "containers": [_container(pods)],
        # The root file system is read-only.
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            # Pods wait until it is there.
            *([{"name": "certificate", "secret": {"secretName": pods.certificate}}] if pods.certificate else ()),
        ],
    }


def _container(pods: Pods) -> dict[str, Any]:
    fields = {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}
    probe = {"path": "/healthz", "port": "health"}
    return {
        "name": "operator",
        "image": pods.image,
        **({"args": list(pods.args)} if pods.args else {}),
        "env": [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()],
        "ports": [
            {"name": "health", "containerPort": HEALTH_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
            *([{"name": PORT_NAME, "containerPort": PORT}] if pods.webhooks else ()),
        ],
        "livenessProbe": {"httpGet": probe, "periodSeconds": 10, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 5, "timeoutSeconds": 2},
        # It listens once types, rights and the ring are there, for which it waits up to a minute.
        "startupProbe": {"httpGet": probe, "periodSeconds": 1, "failureThreshold": 120},
        "resources": dict(RESOURCES),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": TMP},
            *(
                [{"name": "certificate", "mountPath": f"{TMP}/{DEFAULT_DIRECTORY}", "readOnly": True}]
                if pods.certificate
                else ()
            ),
        ],
    }


def _leases_first(pods: Pods) -> Manifest:
    """Shards renew their leases while the API server is short of turns: one that cannot is taken for gone."""
    subject = {"kind": "ServiceAccount", "serviceAccount": {"namespace": pods.namespace, "name": pods.name}}
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "patch", "update"],
        "namespaces": [pods.namespace],
    }
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        # It is in no namespace; a name of both is nobody else's.
        "metadata": {"name": f"{pods.name}-leases.{pods.namespace}", "labels": labels_of(pods.name)},
        "spec": {
            "priorityLevelConfiguration": {"name": "leader-election"},
            "matchingPrecedence": 250,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [subject], "resourceRules": [rule]}],
        },
    }
