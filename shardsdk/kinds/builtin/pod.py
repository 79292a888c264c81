"""The kind Pod, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.pods import PodSpec, ResourceRequirements
from shardsdk.protocol.objects import Resource


class ContainerExtendedResourceRequest(Model, kw_only=True):
    """ContainerExtendedResourceRequest has the mapping of container name, extended resource name to the device request
    name.
    """

    container_name: str
    """The name of the container requesting resources."""
    request_name: str
    """The name of the request in the special ResourceClaim which corresponds to the extended resource."""
    resource_name: str
    """The name of the extended resource in that container which gets backed by DRA."""


class ContainerState(Model, kw_only=True):
    """ContainerState holds a possible state of container."""

    running: ContainerStateRunning | None = None
    """Details about a running container"""
    terminated: ContainerStateTerminated | None = None
    """Details about a terminated container"""
    waiting: ContainerStateWaiting | None = None
    """Details about a waiting container"""


class ContainerStateRunning(Model, kw_only=True):
    """ContainerStateRunning is a running state of a container."""

    started_at: datetime | None = None
    """Time at which the container was last (re-)started"""


class ContainerStateTerminated(Model, kw_only=True):
    """ContainerStateTerminated is a terminated state of a container."""

    container_id: str | None = msgspec.field(default=None, name="containerID")
    """Container's ID in the format '<type>://<container_id>'"""
    exit_code: int
    """Exit status from the last termination of the container"""
    finished_at: datetime | None = None
    """Time at which the container last terminated"""
    message: str | None = None
    """Message regarding the last termination of the container"""
    reason: str | None = None
    """(brief) reason from the last termination of the container"""
    signal: int | None = None
    """Signal from the last termination of the container"""
    started_at: datetime | None = None
    """Time at which previous execution of the container started"""


class ContainerStateWaiting(Model, kw_only=True):
    """ContainerStateWaiting is a waiting state of a container."""

    message: str | None = None
    """Message regarding why the container is not yet running."""
    reason: str | None = None
    """(brief) reason the container is not yet running."""


class ContainerStatus(Model, kw_only=True):
    """ContainerStatus contains details for the current status of this container."""

    allocated_resources: dict[str, str] | None = None
    """AllocatedResources represents the compute resources allocated for this container by the node."""
    allocated_resources_status: list[ResourceStatus] | None = None
    """AllocatedResourcesStatus represents the status of various resources allocated for this Pod."""
    container_id: str | None = msgspec.field(default=None, name="containerID")
    """ContainerID is the ID of the container in the format '<type>://<container_id>'."""
    image: str = ""
    """Image is the name of container image that the container is running."""
    image_id: str = msgspec.field(default="", name="imageID")
    """ImageID is the image ID of the container's image."""
    last_state: ContainerState | None = None
    """LastTerminationState holds the last termination state of the container to help debug container crashes and
    restarts.
    """
    name: str = ""
    """Name is a DNS_LABEL representing the unique name of the container."""
    ready: bool = False
    """Ready specifies whether the container is currently passing its readiness check."""
    resources: ResourceRequirements | None = None
    """Resources represents the compute resource requests and limits that have been successfully enacted on the running
    container after it has been started or has been successfully resized.
    """
    restart_count: int = 0
    """RestartCount holds the number of times the container has been restarted."""
    started: bool | None = None
    """Started indicates whether the container has finished its postStart lifecycle hook and passed its startup probe.
    """
    state: ContainerState | None = None
    """State holds details about the container's current condition."""
    stop_signal: str | None = None
    """StopSignal reports the effective stop signal for this container Possible enum values: - `"SIGABRT"` -
    `"SIGALRM"` - `"SIGBUS"` - `"SIGCHLD"` - `"SIGCLD"` - `"SIGCONT"` - `"SIGFPE"` - `"SIGHUP"` - `"SIGILL"` -
    `"SIGINT"` - `"SIGIO"` - `"SIGIOT"` - `"SIGKILL"` - `"SIGPIPE"` - `"SIGPOLL"` - `"SIGPROF"` - `"SIGPWR"` -
    `"SIGQUIT"` - `"SIGRTMAX"` - `"SIGRTMAX-1"` - `"SIGRTMAX-10"` - `"SIGRTMAX-11"` - `"SIGRTMAX-12"` -
    `"SIGRTMAX-13"` - `"SIGRTMAX-14"` - `"SIGRTMAX-2"` - `"SIGRTMAX-3"` - `"SIGRTMAX-4"` - `"SIGRTMAX-5"` -
    `"SIGRTMAX-6"` - `"SIGRTMAX-7"` - `"SIGRTMAX-8"` - `"SIGRTMAX-9"` - `"SIGRTMIN"` - `"SIGRTMIN+1"` -
    `"SIGRTMIN+10"` - `"SIGRTMIN+11"` - `"SIGRTMIN+12"` - `"SIGRTMIN+13"` - `"SIGRTMIN+14"` - `"SIGRTMIN+15"` -
    `"SIGRTMIN+2"` - `"SIGRTMIN+3"` - `"SIGRTMIN+4"` - `"SIGRTMIN+5"` - `"SIGRTMIN+6"` - `"SIGRTMIN+7"` -
    `"SIGRTMIN+8"` - `"SIGRTMIN+9"` - `"SIGSEGV"` - `"SIGSTKFLT"` - `"SIGSTOP"` - `"SIGSYS"` - `"SIGTERM"` -
    `"SIGTRAP"` - `"SIGTSTP"` - `"SIGTTIN"` - `"SIGTTOU"` - `"SIGURG"` - `"SIGUSR1"` - `"SIGUSR2"` - `"SIGVTALRM"` -
    `"SIGWINCH"` - `"SIGXCPU"` - `"SIGXFSZ"`
    """
    user: ContainerUser | None = None
    """User represents user identity information initially attached to the first process of the container"""
    volume_mounts: list[VolumeMountStatus] | None = None
    """Status of volume mounts."""


class ContainerUser(Model, kw_only=True):
    """ContainerUser represents user identity information"""

    linux: LinuxContainerUser | None = None
    """Linux holds user identity information initially attached to the first process of the containers in Linux."""


class HostIP(Model, kw_only=True):
    """HostIP represents a single IP address allocated to the host."""

    ip: str
    """IP is the IP address assigned to the host"""


class ImageVolumeStatus(Model, kw_only=True):
    """ImageVolumeStatus represents the image-based volume status."""

    image_ref: str
    """ImageRef is the digest of the image used for this volume."""


class LinuxContainerUser(Model, kw_only=True):
    """LinuxContainerUser represents user identity information in Linux containers"""

    gid: int
    """GID is the primary gid initially attached to the first process in the container"""
    supplemental_groups: list[int] | None = None
    """SupplementalGroups are the supplemental groups initially attached to the first process in the container"""
    uid: int
    """UID is the primary uid initially attached to the first process in the container"""


class NodeAllocatableResourceClaimStatus(Model, kw_only=True):
    """NodeAllocatableResourceClaimStatus describes the status of node allocatable resources allocated via DRA."""

    containers: list[str] | None = None
    """Containers lists the names of all containers in this pod that reference the claim."""
    resource_claim_name: str
    """ResourceClaimName is the resource claim referenced by the pod that resulted in this node allocatable resource
    allocation.
    """
    resources: dict[str, str]
    """Resources is a map of the node-allocatable resource name to the aggregate quantity allocated to the claim."""


class Pod(Kind, kw_only=True):
    """Pod is a collection of containers that can run on a host."""

    resource: ClassVar[Resource] = Resource("", "v1", "pods", "Pod")

    spec: PodSpec
    """Specification of the desired behavior of the pod."""
    status: PodStatus = msgspec.field(default_factory=lambda: PodStatus())
    """Most recently observed status of the pod."""


class PodCondition(Model, kw_only=True):
    """PodCondition contains details for the current condition of this pod."""

    last_probe_time: datetime | None = None
    """Last time we probed the condition."""
    last_transition_time: datetime | None = None
    """Last time the condition transitioned from one status to another."""
    message: str | None = None
    """Human-readable message indicating details about last transition."""
    observed_generation: int | None = None
    """If set, this represents the .metadata.generation that the pod condition was set based upon."""
    reason: str | None = None
    """Unique, one-word, CamelCase reason for the condition's last transition."""
    status: str
    """Status is the status of the condition."""
    type: str
    """Type is the type of the condition."""


class PodExtendedResourceClaimStatus(Model, kw_only=True):
    """PodExtendedResourceClaimStatus is stored in the PodStatus for the extended resource requests backed by DRA.
    """

    request_mappings: list[ContainerExtendedResourceRequest]
    """RequestMappings identifies the mapping of <container, extended resource backed by DRA> to device request in the
    generated ResourceClaim.
    """
    resource_claim_name: str
    """ResourceClaimName is the name of the ResourceClaim that was generated for the Pod in the namespace of the Pod.
    """


class PodIP(Model, kw_only=True):
    """PodIP represents a single IP address allocated to the pod."""

    ip: str
    """IP is the IP address assigned to the pod"""


class PodResourceClaimStatus(Model, kw_only=True):
    """PodResourceClaimStatus is stored in the PodStatus for each PodResourceClaim which references a
    ResourceClaimTemplate.
    """

    name: str = ""
    """Name uniquely identifies this resource claim inside the pod."""
    resource_claim_name: str | None = None
    """ResourceClaimName is the name of the ResourceClaim that was generated for the Pod in the namespace of the Pod.
    """


class PodStatus(Model, kw_only=True):
    """PodStatus represents information about the status of a pod."""

    allocated_resources: dict[str, str] | None = None
    """AllocatedResources is the total requests allocated for this pod by the node."""
    conditions: list[PodCondition] | None = None
    """Current service state of pod."""
    container_statuses: list[ContainerStatus] | None = None
    """Statuses of containers in this pod."""
    ephemeral_container_statuses: list[ContainerStatus] | None = None
    """Statuses for any ephemeral containers that have run in this pod."""
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    """Status of extended resource claim backed by DRA."""
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    """hostIP holds the IP address of the host to which the pod is assigned."""
    host_ips: list[HostIP] | None = msgspec.field(default=None, name="hostIPs")
    """hostIPs holds the IP addresses allocated to the host."""
    init_container_statuses: list[ContainerStatus] | None = None
    """Statuses of init containers in this pod."""
    message: str | None = None
    """A human readable message indicating details about why the pod is in this condition."""
    node_allocatable_resource_claim_statuses: list[NodeAllocatableResourceClaimStatus] | None = None
    """NodeAllocatableResourceClaimStatuses contains the status of node-allocatable resources that were allocated for
    this pod through DRA claims.
    """
    nominated_node_name: str | None = None
    """nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled right
    away as preemption victims receive their graceful termination periods.
    """
    observed_generation: int | None = None
    """If set, this represents the .metadata.generation that the pod status was set based upon."""
    phase: str | None = None
    """The phase of a Pod is a simple, high-level summary of where the Pod is in its lifecycle."""
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    """podIP address allocated to the pod."""
    pod_ips: list[PodIP] | None = msgspec.field(default=None, name="podIPs")
    """podIPs holds the IP addresses allocated to the pod."""
    qos_class: str | None = None
    """The Quality of Service (QOS) classification assigned to the pod based on resource requirements See PodQOSClass
    type for available QOS classes More info:
    https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/#quality-of-service-classes Possible enum values: -
    `"BestEffort"` is the BestEffort qos class. - `"Burstable"` is the Burstable qos class. - `"Guaranteed"` is the
    Guaranteed qos class.
    """
    reason: str | None = None
    """A brief CamelCase message indicating details about why the pod is in this state. e.g."""
    resize: str | None = None
    """Status of resources resize desired for pod's containers."""
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    """Status of resource claims."""
    resources: ResourceRequirements | None = None
    """Resources represents the compute resource requests and limits that have been applied at the pod level if
    pod-level requests or limits are set in PodSpec.Resources
    """
    start_time: datetime | None = None
    """RFC 3339 date and time at which the object was acknowledged by the Kubelet."""


class ResourceHealth(Model, kw_only=True):
    """ResourceHealth represents the health of a resource."""

    health: str | None = None
    """Health of the resource. can be one of: - Healthy: operates as normal - Unhealthy: reported unhealthy."""
    message: str | None = None
    """Message provides human-readable context for Health (e.g."""
    resource_id: str = msgspec.field(name="resourceID")
    """ResourceID is the unique identifier of the resource."""


class ResourceStatus(Model, kw_only=True):
    """ResourceStatus represents the status of a single resource allocated to a Pod."""

    name: str
    """Name of the resource."""
    resources: list[ResourceHealth] | None = None
    """List of unique resources health."""


class VolumeMountStatus(Model, kw_only=True):
    """VolumeMountStatus shows status of volume mounts."""

    mount_path: str = ""
    """MountPath corresponds to the original VolumeMount."""
    name: str = ""
    """Name corresponds to the name of the original VolumeMount."""
    read_only: bool | None = None
    """ReadOnly corresponds to the original VolumeMount."""
    recursive_read_only: str | None = None
    """RecursiveReadOnly must be set to Disabled, Enabled, or unspecified (for non-readonly mounts)."""
    volume_status: VolumeStatus | None = None
    """volumeStatus represents volume-type-specific status about the mounted volume."""


class VolumeStatus(Model, kw_only=True):
    """VolumeStatus represents the status of a mounted volume."""

    image: ImageVolumeStatus | None = None
    """image represents an OCI object (a container image or artifact) pulled and mounted on the kubelet's host machine.
    """
