"""The kind Node, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.protocol.objects import Resource


class AttachedVolume(Model, kw_only=True):
    """AttachedVolume describes a volume attached to a node"""

    device_path: str
    """DevicePath represents the device path where the volume should be available"""
    name: str
    """Name of the attached volume"""


class ConfigMapNodeConfigSource(Model, kw_only=True):
    """ConfigMapNodeConfigSource contains the information to reference a ConfigMap as a config source for the Node.
    """

    kubelet_config_key: str
    """KubeletConfigKey declares which key of the referenced ConfigMap corresponds to the KubeletConfiguration
    structure This field is required in all cases.
    """
    name: str
    """Name is the metadata.name of the referenced ConfigMap."""
    namespace: str
    """Namespace is the metadata.namespace of the referenced ConfigMap."""
    resource_version: str | None = None
    """ResourceVersion is the metadata.ResourceVersion of the referenced ConfigMap."""
    uid: str | None = None
    """UID is the metadata.UID of the referenced ConfigMap."""


class ContainerImage(Model, kw_only=True):
    """Describe a container image"""

    names: list[str] | None = None
    """Names by which this image is known. e.g. ["kubernetes.example/hyperkube:v1.0.7",
    "cloud-vendor.registry.example/cloud-vendor/hyperkube:v1.0.7"]
    """
    size_bytes: int | None = None
    """The size of the image in bytes."""


class DaemonEndpoint(Model, kw_only=True):
    """DaemonEndpoint contains information about a single Daemon endpoint."""

    port: int = msgspec.field(name="Port")
    """Port number of the given endpoint."""


class Node(Kind, kw_only=True):
    """Node is a worker node in Kubernetes."""

    resource: ClassVar[Resource] = Resource("", "v1", "nodes", "Node", namespaced=False)

    spec: NodeSpec = msgspec.field(default_factory=lambda: NodeSpec())
    """Spec defines the behavior of a node.
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status
    """
    status: NodeStatus = msgspec.field(default_factory=lambda: NodeStatus())
    """Most recently observed status of the node."""


class NodeAddress(Model, kw_only=True):
    """NodeAddress contains information for the node's address."""

    address: str
    """The node address."""
    type: str
    """Node address type, one of Hostname, ExternalIP or InternalIP."""


class NodeCondition(Model, kw_only=True):
    """NodeCondition contains condition information for a node."""

    last_heartbeat_time: datetime | None = None
    """Last time we got an update on a given condition."""
    last_transition_time: datetime | None = None
    """Last time the condition transit from one status to another."""
    message: str | None = None
    """Human readable message indicating details about last transition."""
    reason: str | None = None
    """(brief) reason for the condition's last transition."""
    status: str
    """Status of the condition, one of True, False, Unknown."""
    type: str
    """Type of node condition."""


class NodeConfigSource(Model, kw_only=True):
    """NodeConfigSource specifies a source of node configuration."""

    config_map: ConfigMapNodeConfigSource | None = None
    """ConfigMap is a reference to a Node's ConfigMap"""


class NodeConfigStatus(Model, kw_only=True):
    """NodeConfigStatus describes the status of the config assigned by Node.Spec.ConfigSource."""

    active: NodeConfigSource | None = None
    """Active reports the checkpointed config the node is actively using."""
    assigned: NodeConfigSource | None = None
    """Assigned reports the checkpointed config the node will try to use."""
    error: str | None = None
    """Error describes any problems reconciling the Spec.ConfigSource to the Active config."""
    last_known_good: NodeConfigSource | None = None
    """LastKnownGood reports the checkpointed config the node will fall back to when it encounters an error attempting
    to use the Assigned config.
    """


class NodeDaemonEndpoints(Model, kw_only=True):
    """NodeDaemonEndpoints lists ports opened by daemons running on the Node."""

    kubelet_endpoint: DaemonEndpoint | None = None
    """Endpoint on which Kubelet is listening."""


class NodeFeatures(Model, kw_only=True):
    """NodeFeatures describes the set of features implemented by the CRI implementation."""

    supplemental_groups_policy: bool | None = None
    """SupplementalGroupsPolicy is set to true if the runtime supports SupplementalGroupsPolicy and ContainerUser.
    """


class NodeRuntimeHandler(Model, kw_only=True):
    """NodeRuntimeHandler is a set of runtime handler information."""

    features: NodeRuntimeHandlerFeatures | None = None
    """Supported features."""
    name: str | None = None
    """Runtime handler name."""


class NodeRuntimeHandlerFeatures(Model, kw_only=True):
    """NodeRuntimeHandlerFeatures is a set of features implemented by the runtime handler."""

    recursive_read_only_mounts: bool | None = None
    """RecursiveReadOnlyMounts is set to true if the runtime handler supports RecursiveReadOnlyMounts."""
    user_namespaces: bool | None = None
    """UserNamespaces is set to true if the runtime handler supports UserNamespaces, including for volumes."""


class NodeSpec(Model, kw_only=True):
    """NodeSpec describes the attributes that a node is created with."""

    config_source: NodeConfigSource | None = None
    """Deprecated: Previously used to specify the source of the node's configuration for the DynamicKubeletConfig
    feature.
    """
    external_id: str | None = msgspec.field(default=None, name="externalID")
    """Deprecated."""
    pod_cidr: str | None = msgspec.field(default=None, name="podCIDR")
    """PodCIDR represents the pod IP range assigned to the node."""
    pod_cidrs: list[str] | None = msgspec.field(default=None, name="podCIDRs")
    """podCIDRs represents the IP ranges assigned to the node for usage by Pods on that node."""
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    """ID of the node assigned by the cloud provider in the format: <ProviderName>://<ProviderSpecificNodeID>"""
    taints: list[Taint] | None = None
    """If specified, the node's taints."""
    unschedulable: bool | None = None
    """Unschedulable controls node schedulability of new pods."""


class NodeStatus(Model, kw_only=True):
    """NodeStatus is information about the current status of a node."""

    addresses: list[NodeAddress] | None = None
    """List of addresses reachable to the node."""
    allocatable: dict[str, str] | None = None
    """Allocatable represents the resources of a node that are available for scheduling."""
    capacity: dict[str, str] | None = None
    """Capacity represents the total resources of a node."""
    conditions: list[NodeCondition] | None = None
    """Conditions is an array of current observed node conditions."""
    config: NodeConfigStatus | None = None
    """Status of the config assigned to the node via the dynamic Kubelet config feature."""
    daemon_endpoints: NodeDaemonEndpoints | None = None
    """Endpoints of daemons running on the Node."""
    declared_features: list[str] | None = None
    """DeclaredFeatures represents the features related to feature gates that are declared by the node."""
    features: NodeFeatures | None = None
    """Features describes the set of features implemented by the CRI implementation."""
    images: list[ContainerImage] | None = None
    """List of container images on this node"""
    node_info: NodeSystemInfo | None = None
    """Set of ids/uuids to uniquely identify the node."""
    phase: str | None = None
    """NodePhase is the recently observed lifecycle phase of the node."""
    runtime_handlers: list[NodeRuntimeHandler] | None = None
    """The available runtime handlers."""
    volumes_attached: list[AttachedVolume] | None = None
    """List of volumes that are attached to the node."""
    volumes_in_use: list[str] | None = None
    """List of attachable volumes in use (mounted) by the node."""


class NodeSwapStatus(Model, kw_only=True):
    """NodeSwapStatus represents swap memory information."""

    capacity: int | None = None
    """Total amount of swap memory in bytes."""


class NodeSystemInfo(Model, kw_only=True):
    """NodeSystemInfo is a set of ids/uuids to uniquely identify the node."""

    architecture: str
    """The Architecture reported by the node"""
    boot_id: str = msgspec.field(name="bootID")
    """Boot ID reported by the node."""
    container_runtime_version: str
    """ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2)."""
    kernel_version: str
    """Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64)."""
    kube_proxy_version: str
    """Deprecated: KubeProxy Version reported by the node."""
    kubelet_version: str
    """Kubelet Version reported by the node."""
    machine_id: str = msgspec.field(name="machineID")
    """MachineID reported by the node."""
    operating_system: str
    """The Operating System reported by the node"""
    os_image: str
    """OS Image reported by the node from /etc/os-release (e.g."""
    swap: NodeSwapStatus | None = None
    """Swap Info reported by the node."""
    system_uuid: str = msgspec.field(name="systemUUID")
    """SystemUUID reported by the node."""


class Taint(Model, kw_only=True):
    """The node this Taint is attached to has the "effect" on any pod that does not tolerate the Taint."""

    effect: str
    """Required."""
    key: str
    """Required."""
    time_added: datetime | None = None
    """TimeAdded represents the time at which the taint was added."""
    value: str | None = None
    """The taint value corresponding to the taint key."""
