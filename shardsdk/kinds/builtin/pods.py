"""What pods are made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

import msgspec

from shardsdk.kinds.base import Model
from shardsdk.kinds.builtin.shared import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    FCVolumeSource,
    FlockerVolumeSource,
    GCEPersistentDiskVolumeSource,
    HostPathVolumeSource,
    LabelSelector,
    LocalObjectReference,
    NFSVolumeSource,
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolumeClaimSpec,
    PhotonPersistentDiskVolumeSource,
    PortworxVolumeSource,
    QuobyteVolumeSource,
    VsphereVirtualDiskVolumeSource,
)
from shardsdk.protocol.objects import ObjectMeta


class Affinity(Model, kw_only=True):
    """Affinity is a group of affinity scheduling rules."""

    node_affinity: NodeAffinity | None = None
    """Describes node affinity scheduling rules for the pod."""
    pod_affinity: PodAffinity | None = None
    """Describes pod affinity scheduling rules (e.g. co-locate this pod in the same node, zone, etc. as some other
    pod(s)).
    """
    pod_anti_affinity: PodAntiAffinity | None = None
    """Describes pod anti-affinity scheduling rules (e.g. avoid putting this pod in the same node, zone, etc. as some
    other pod(s)).
    """


class AppArmorProfile(Model, kw_only=True):
    """AppArmorProfile defines a pod or container's AppArmor settings."""

    localhost_profile: str | None = None
    """localhostProfile indicates a profile loaded on the node that should be used."""
    type: str
    """type indicates which kind of AppArmor profile will be applied."""


class AzureFileVolumeSource(Model, kw_only=True):
    """AzureFile represents an Azure File Service mount on the host and bind mount to the pod."""

    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    secret_name: str
    """secretName is the name of secret that contains Azure Storage Account Name and Key"""
    share_name: str
    """shareName is the azure share Name"""


class CSIVolumeSource(Model, kw_only=True):
    """Represents a source location of a volume to mount, managed by an external CSI driver"""

    driver: str
    """driver is the name of the CSI driver that handles this volume."""
    fs_type: str | None = None
    """fsType to mount."""
    node_publish_secret_ref: LocalObjectReference | None = None
    """nodePublishSecretRef is a reference to the secret object containing sensitive information to pass to the CSI
    driver to complete the CSI NodePublishVolume and NodeUnpublishVolume calls.
    """
    read_only: bool | None = None
    """readOnly specifies a read-only configuration for the volume."""
    volume_attributes: dict[str, str] | None = None
    """volumeAttributes stores driver-specific properties that are passed to the CSI driver."""


class Capabilities(Model, kw_only=True):
    """Adds and removes POSIX capabilities from running containers."""

    add: list[str] | None = None
    """Added capabilities"""
    drop: list[str] | None = None
    """Removed capabilities"""


class CephFSVolumeSource(Model, kw_only=True):
    """Represents a Ceph Filesystem mount that lasts the lifetime of a pod Cephfs volumes do not support ownership
    management or SELinux relabeling.
    """

    monitors: list[str]
    """monitors is Required: Monitors is a collection of Ceph monitors More info:
    https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it
    """
    path: str | None = None
    """path is Optional: Used as the mounted root, rather than the full Ceph tree, default is /"""
    read_only: bool | None = None
    """readOnly is Optional: Defaults to false (read/write)."""
    secret_file: str | None = None
    """secretFile is Optional: SecretFile is the path to key ring for User, default is /etc/ceph/user.secret More info:
    https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it
    """
    secret_ref: LocalObjectReference | None = None
    """secretRef is Optional: SecretRef is reference to the authentication secret for User, default is empty."""
    user: str | None = None
    """user is optional: User is the rados user name, default is admin More info:
    https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it
    """


class CinderVolumeSource(Model, kw_only=True):
    """Represents a cinder volume resource in Openstack."""

    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    secret_ref: LocalObjectReference | None = None
    """secretRef is optional: points to a secret object containing parameters used to connect to OpenStack."""
    volume_id: str = msgspec.field(name="volumeID")
    """volumeID used to identify the volume in cinder."""


class ClusterTrustBundleProjection(Model, kw_only=True):
    """ClusterTrustBundleProjection describes how to select a set of ClusterTrustBundle objects and project their
    contents into the pod filesystem.
    """

    label_selector: LabelSelector | None = None
    """Select all ClusterTrustBundles that match this label selector."""
    name: str | None = None
    """Select a single ClusterTrustBundle by object name."""
    optional: bool | None = None
    """If true, don't block pod startup if the referenced ClusterTrustBundle(s) aren't available."""
    path: str
    """Relative path from the volume root to write the bundle."""
    signer_name: str | None = None
    """Select all ClusterTrustBundles that match this signer name."""


class ConfigMapEnvSource(Model, kw_only=True):
    """ConfigMapEnvSource selects a ConfigMap to populate the environment variables with."""

    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """Specify whether the ConfigMap must be defined"""


class ConfigMapKeySelector(Model, kw_only=True):
    """Selects a key from a ConfigMap."""

    key: str
    """The key to select."""
    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """Specify whether the ConfigMap or its key must be defined"""


class ConfigMapProjection(Model, kw_only=True):
    """Adapts a ConfigMap into a projected volume."""

    items: list[KeyToPath] | None = None
    """items if unspecified, each key-value pair in the Data field of the referenced ConfigMap will be projected into
    the volume as a file whose name is the key and content is the value.
    """
    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """optional specify whether the ConfigMap or its keys must be defined"""


class ConfigMapVolumeSource(Model, kw_only=True):
    """Adapts a ConfigMap into a volume."""

    default_mode: int | None = None
    """defaultMode is optional: mode bits used to set permissions on created files by default."""
    items: list[KeyToPath] | None = None
    """items if unspecified, each key-value pair in the Data field of the referenced ConfigMap will be projected into
    the volume as a file whose name is the key and content is the value.
    """
    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """optional specify whether the ConfigMap or its keys must be defined"""


class Container(Model, kw_only=True):
    """A single application container that you want to run within a pod."""

    args: list[str] | None = None
    """Arguments to the entrypoint."""
    command: list[str] | None = None
    """Entrypoint array."""
    env: list[EnvVar] | None = None
    """List of environment variables to set in the container."""
    env_from: list[EnvFromSource] | None = None
    """List of sources to populate environment variables in the container."""
    image: str | None = None
    """Container image name."""
    image_pull_policy: str | None = None
    """Image pull policy."""
    lifecycle: Lifecycle | None = None
    """Actions that the management system should take in response to container lifecycle events."""
    liveness_probe: Probe | None = None
    """Periodic probe of container liveness."""
    name: str
    """Name of the container specified as a DNS_LABEL."""
    ports: list[ContainerPort] | None = None
    """List of ports to expose from the container."""
    readiness_probe: Probe | None = None
    """Periodic probe of container service readiness."""
    resize_policy: list[ContainerResizePolicy] | None = None
    """Resources resize policy for the container."""
    resources: ResourceRequirements | None = None
    """Compute Resources required by this container."""
    restart_policy: str | None = None
    """RestartPolicy defines the restart behavior of individual containers in a pod."""
    restart_policy_rules: list[ContainerRestartRule] | None = None
    """Represents a list of rules to be checked to determine if the container should be restarted on exit."""
    security_context: SecurityContext | None = None
    """SecurityContext defines the security options the container should be run with."""
    startup_probe: Probe | None = None
    """StartupProbe indicates that the Pod has successfully initialized."""
    stdin: bool | None = None
    """Whether this container should allocate a buffer for stdin in the container runtime."""
    stdin_once: bool | None = None
    """Whether the container runtime should close the stdin channel after it has been opened by a single attach."""
    termination_message_path: str | None = None
    """Optional: Path at which the file to which the container's termination message will be written is mounted into
    the container's filesystem.
    """
    termination_message_policy: str | None = None
    """Indicate how the termination message should be populated."""
    tty: bool | None = None
    """Whether this container should allocate a TTY for itself, also requires 'stdin' to be true."""
    volume_devices: list[VolumeDevice] | None = None
    """volumeDevices is the list of block devices to be used by the container."""
    volume_mounts: list[VolumeMount] | None = None
    """Pod volumes to mount into the container's filesystem."""
    working_dir: str | None = None
    """Container's working directory."""


class ContainerPort(Model, kw_only=True):
    """ContainerPort represents a network port in a single container."""

    container_port: int
    """Number of port to expose on the pod's IP address."""
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    """What host IP to bind the external port to."""
    host_port: int | None = None
    """Number of port to expose on the host."""
    name: str | None = None
    """If specified, this must be an IANA_SVC_NAME and unique within the pod."""
    protocol: str | None = None
    """Protocol for port."""


class ContainerResizePolicy(Model, kw_only=True):
    """ContainerResizePolicy represents resource resize policy for the container."""

    resource_name: str
    """Name of the resource to which this resource resize policy applies."""
    restart_policy: str
    """Restart policy to apply when specified resource is resized."""


class ContainerRestartRule(Model, kw_only=True):
    """ContainerRestartRule describes how a container exit is handled."""

    action: str
    """Specifies the action taken on a container exit if the requirements are satisfied."""
    exit_codes: ContainerRestartRuleOnExitCodes | None = None
    """Represents the exit codes to check on container exits."""


class ContainerRestartRuleOnExitCodes(Model, kw_only=True):
    """ContainerRestartRuleOnExitCodes describes the condition for handling an exited container based on its exit
    codes.
    """

    operator: str
    """Represents the relationship between the container exit code(s) and the specified values."""
    values: list[int] | None = None
    """Specifies the set of values to check for container exit codes."""


class DownwardAPIProjection(Model, kw_only=True):
    """Represents downward API info for projecting into a projected volume."""

    items: list[DownwardAPIVolumeFile] | None = None
    """Items is a list of DownwardAPIVolume file"""


class DownwardAPIVolumeFile(Model, kw_only=True):
    """DownwardAPIVolumeFile represents information to create the file containing the pod field"""

    field_ref: ObjectFieldSelector | None = None
    """Required: Selects a field of the pod: only annotations, labels, name, namespace and uid are supported."""
    mode: int | None = None
    """Optional: mode bits used to set permissions on this file, must be an octal value between 0000 and 0777 or a
    decimal value between 0 and 511.
    """
    path: str
    """Required: Path is the relative path name of the file to be created."""
    resource_field_ref: ResourceFieldSelector | None = None
    """Selects a resource of the container: only resources limits and requests (limits.cpu, limits.memory, requests.cpu
    and requests.memory) are currently supported.
    """


class DownwardAPIVolumeSource(Model, kw_only=True):
    """DownwardAPIVolumeSource represents a volume containing downward API info."""

    default_mode: int | None = None
    """Optional: mode bits to use on created files by default."""
    items: list[DownwardAPIVolumeFile] | None = None
    """Items is a list of downward API volume file"""


class EmptyDirVolumeSource(Model, kw_only=True):
    """Represents an empty directory for a pod."""

    medium: str | None = None
    """medium represents what type of storage medium should back this directory."""
    size_limit: str | None = None
    """sizeLimit is the total amount of local storage required for this EmptyDir volume."""


class EnvFromSource(Model, kw_only=True):
    """EnvFromSource represents the source of a set of ConfigMaps or Secrets"""

    config_map_ref: ConfigMapEnvSource | None = None
    """The ConfigMap to select from"""
    prefix: str | None = None
    """Optional text to prepend to the name of each environment variable."""
    secret_ref: SecretEnvSource | None = None
    """The Secret to select from"""


class EnvVar(Model, kw_only=True):
    """EnvVar represents an environment variable present in a Container."""

    name: str
    """Name of the environment variable."""
    value: str | None = None
    """Variable references $(VAR_NAME) are expanded using the previously defined environment variables in the container
    and any service environment variables.
    """
    value_from: EnvVarSource | None = None
    """Source for the environment variable's value."""


class EnvVarSource(Model, kw_only=True):
    """EnvVarSource represents a source for the value of an EnvVar."""

    config_map_key_ref: ConfigMapKeySelector | None = None
    """Selects a key of a ConfigMap."""
    field_ref: ObjectFieldSelector | None = None
    """Selects a field of the pod: supports metadata.name, metadata.namespace, `metadata.labels['<KEY>']`,
    `metadata.annotations['<KEY>']`, spec.nodeName, spec.serviceAccountName, status.hostIP, status.podIP,
    status.podIPs.
    """
    file_key_ref: FileKeySelector | None = None
    """FileKeyRef selects a key of the env file."""
    resource_field_ref: ResourceFieldSelector | None = None
    """Selects a resource of the container: only resources limits and requests (limits.cpu, limits.memory,
    limits.ephemeral-storage, requests.cpu, requests.memory and requests.ephemeral-storage) are currently supported.
    """
    secret_key_ref: SecretKeySelector | None = None
    """Selects a key of a secret in the pod's namespace"""


class EphemeralContainer(Model, kw_only=True):
    """An EphemeralContainer is a temporary container that you may add to an existing Pod for user-initiated activities
    such as debugging.
    """

    args: list[str] | None = None
    """Arguments to the entrypoint."""
    command: list[str] | None = None
    """Entrypoint array."""
    env: list[EnvVar] | None = None
    """List of environment variables to set in the container."""
    env_from: list[EnvFromSource] | None = None
    """List of sources to populate environment variables in the container."""
    image: str | None = None
    """Container image name."""
    image_pull_policy: str | None = None
    """Image pull policy."""
    lifecycle: Lifecycle | None = None
    """Lifecycle is not allowed for ephemeral containers."""
    liveness_probe: Probe | None = None
    """Probes are not allowed for ephemeral containers."""
    name: str
    """Name of the ephemeral container specified as a DNS_LABEL."""
    ports: list[ContainerPort] | None = None
    """Ports are not allowed for ephemeral containers."""
    readiness_probe: Probe | None = None
    """Probes are not allowed for ephemeral containers."""
    resize_policy: list[ContainerResizePolicy] | None = None
    """Resources resize policy for the container."""
    resources: ResourceRequirements | None = None
    """Resources are not allowed for ephemeral containers."""
    restart_policy: str | None = None
    """Restart policy for the container to manage the restart behavior of each container within a pod."""
    restart_policy_rules: list[ContainerRestartRule] | None = None
    """Represents a list of rules to be checked to determine if the container should be restarted on exit."""
    security_context: SecurityContext | None = None
    """Optional: SecurityContext defines the security options the ephemeral container should be run with."""
    startup_probe: Probe | None = None
    """Probes are not allowed for ephemeral containers."""
    stdin: bool | None = None
    """Whether this container should allocate a buffer for stdin in the container runtime."""
    stdin_once: bool | None = None
    """Whether the container runtime should close the stdin channel after it has been opened by a single attach."""
    target_container_name: str | None = None
    """If set, the name of the container from PodSpec that this ephemeral container targets."""
    termination_message_path: str | None = None
    """Optional: Path at which the file to which the container's termination message will be written is mounted into
    the container's filesystem.
    """
    termination_message_policy: str | None = None
    """Indicate how the termination message should be populated."""
    tty: bool | None = None
    """Whether this container should allocate a TTY for itself, also requires 'stdin' to be true."""
    volume_devices: list[VolumeDevice] | None = None
    """volumeDevices is the list of block devices to be used by the container."""
    volume_mounts: list[VolumeMount] | None = None
    """Pod volumes to mount into the container's filesystem."""
    working_dir: str | None = None
    """Container's working directory."""


class EphemeralVolumeSource(Model, kw_only=True):
    """Represents an ephemeral volume that is handled by a normal storage driver."""

    volume_claim_template: PersistentVolumeClaimTemplate | None = None
    """Will be used to create a stand-alone PVC to provision the volume."""


class ExecAction(Model, kw_only=True):
    """ExecAction describes a "run in container" action."""

    command: list[str] | None = None
    """Command is the command line to execute inside the container, the working directory for the command is root ('/')
    in the container's filesystem.
    """


class FileKeySelector(Model, kw_only=True):
    """FileKeySelector selects a key of the env file."""

    key: str
    """The key within the env file."""
    optional: bool | None = None
    """Specify whether the file or its key must be defined."""
    path: str
    """The path within the volume from which to select the file."""
    volume_name: str
    """The name of the volume mount containing the env file."""


class FlexVolumeSource(Model, kw_only=True):
    """FlexVolume represents a generic volume resource that is provisioned/attached using an exec based plugin."""

    driver: str
    """driver is the name of the driver to use for this volume."""
    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    options: dict[str, str] | None = None
    """options is Optional: this field holds extra command options if any."""
    read_only: bool | None = None
    """readOnly is Optional: defaults to false (read/write)."""
    secret_ref: LocalObjectReference | None = None
    """secretRef is Optional: secretRef is reference to the secret object containing sensitive information to pass to
    the plugin scripts.
    """


class GRPCAction(Model, kw_only=True):
    """GRPCAction specifies an action involving a GRPC service."""

    port: int
    """Port number of the gRPC service."""
    service: str | None = None
    """Service is the name of the service to place in the gRPC HealthCheckRequest (see
    https://github.com/grpc/grpc/blob/master/doc/health-checking.md).
    """


class GitRepoVolumeSource(Model, kw_only=True):
    """Represents a volume that is populated with the contents of a git repository."""

    directory: str | None = None
    """directory is the target directory name."""
    repository: str
    """repository is the URL"""
    revision: str | None = None
    """revision is the commit hash for the specified revision."""


class GlusterfsVolumeSource(Model, kw_only=True):
    """Represents a Glusterfs mount that lasts the lifetime of a pod."""

    endpoints: str
    """endpoints is the endpoint name that details Glusterfs topology."""
    path: str
    """path is the Glusterfs volume path."""
    read_only: bool | None = None
    """readOnly here will force the Glusterfs volume to be mounted with read-only permissions."""


class HTTPGetAction(Model, kw_only=True):
    """HTTPGetAction describes an action based on HTTP Get requests."""

    host: str | None = None
    """Host name to connect to, defaults to the pod IP."""
    http_headers: list[HTTPHeader] | None = None
    """Custom headers to set in the request."""
    path: str | None = None
    """Path to access on the HTTP server."""
    port: int | str
    """Name or number of the port to access on the container."""
    scheme: str | None = None
    """Scheme to use for connecting to the host."""


class HTTPHeader(Model, kw_only=True):
    """HTTPHeader describes a custom header to be used in HTTP probes"""

    name: str
    """The header field name."""
    value: str
    """The header field value"""


class HostAlias(Model, kw_only=True):
    """HostAlias holds the mapping between IP and hostnames that will be injected as an entry in the pod's hosts file.
    """

    hostnames: list[str] | None = None
    """Hostnames for the above IP address."""
    ip: str
    """IP address of the host file entry."""


class ISCSIVolumeSource(Model, kw_only=True):
    """Represents an ISCSI disk."""

    chap_auth_discovery: bool | None = None
    """chapAuthDiscovery defines whether support iSCSI Discovery CHAP authentication"""
    chap_auth_session: bool | None = None
    """chapAuthSession defines whether support iSCSI Session CHAP authentication"""
    fs_type: str | None = None
    """fsType is the filesystem type of the volume that you want to mount."""
    initiator_name: str | None = None
    """initiatorName is the custom iSCSI Initiator Name."""
    iqn: str
    """iqn is the target iSCSI Qualified Name."""
    iscsi_interface: str | None = None
    """iscsiInterface is the interface Name that uses an iSCSI transport."""
    lun: int
    """lun represents iSCSI Target Lun number."""
    portals: list[str] | None = None
    """portals is the iSCSI Target Portal List."""
    read_only: bool | None = None
    """readOnly here will force the ReadOnly setting in VolumeMounts."""
    secret_ref: LocalObjectReference | None = None
    """secretRef is the CHAP Secret for iSCSI target and initiator authentication"""
    target_portal: str
    """targetPortal is iSCSI Target Portal."""


class ImageVolumeSource(Model, kw_only=True):
    """ImageVolumeSource represents a image volume resource."""

    pull_policy: str | None = None
    """Policy for pulling OCI objects."""
    reference: str | None = None
    """Required: Image or artifact reference to be used."""


class JobSpec(Model, kw_only=True):
    """JobSpec describes how the job execution will look like."""

    active_deadline_seconds: int | None = None
    """Specifies the duration in seconds relative to the startTime that the job may be continuously active before the
    system tries to terminate it; value must be positive integer.
    """
    backoff_limit: int | None = None
    """Specifies the number of retries before marking this job failed."""
    backoff_limit_per_index: int | None = None
    """Specifies the limit for the number of retries within an index before marking this index as failed."""
    completion_mode: str | None = None
    """completionMode specifies how Pod completions are tracked."""
    completions: int | None = None
    """Specifies the desired number of successfully finished pods the job should be run with."""
    managed_by: str | None = None
    """ManagedBy field indicates the controller that manages a Job."""
    manual_selector: bool | None = None
    """manualSelector controls generation of pod labels and pod selectors."""
    max_failed_indexes: int | None = None
    """Specifies the maximal number of failed indexes before marking the Job as failed, when backoffLimitPerIndex is
    set.
    """
    parallelism: int | None = None
    """Specifies the maximum desired number of pods the job should run at any given time."""
    pod_failure_policy: PodFailurePolicy | None = None
    """Specifies the policy of handling failed pods."""
    pod_replacement_policy: str | None = None
    """podReplacementPolicy specifies when to create replacement Pods."""
    selector: LabelSelector | None = None
    """A label query over pods that should match the pod count."""
    success_policy: SuccessPolicy | None = None
    """successPolicy specifies the policy when the Job can be declared as succeeded."""
    suspend: bool | None = None
    """suspend specifies whether the Job controller should create Pods or not."""
    template: PodTemplateSpec
    """Describes the pod that will be created when executing a job."""
    ttl_seconds_after_finished: int | None = None
    """ttlSecondsAfterFinished limits the lifetime of a Job that has finished execution (either Complete or Failed).
    """


class KeyToPath(Model, kw_only=True):
    """Maps a string key to a path within a volume."""

    key: str
    """key is the key to project."""
    mode: int | None = None
    """mode is Optional: mode bits used to set permissions on this file."""
    path: str
    """path is the relative path of the file to map the key to."""


class Lifecycle(Model, kw_only=True):
    """Lifecycle describes actions that the management system should take in response to container lifecycle events.
    """

    post_start: LifecycleHandler | None = None
    """PostStart is called immediately after a container is created."""
    pre_stop: LifecycleHandler | None = None
    """PreStop is called immediately before a container is terminated due to an API request or management event such as
    liveness/startup probe failure, preemption, resource contention, etc.
    """
    stop_signal: str | None = None
    """StopSignal defines which signal will be sent to a container when it is being stopped."""


class LifecycleHandler(Model, kw_only=True):
    """LifecycleHandler defines a specific action that should be taken in a lifecycle hook."""

    exec: ExecAction | None = None
    """Exec specifies a command to execute in the container."""
    http_get: HTTPGetAction | None = None
    """HTTPGet specifies an HTTP GET request to perform."""
    sleep: SleepAction | None = None
    """Sleep represents a duration that the container should sleep."""
    tcp_socket: TCPSocketAction | None = None
    """Deprecated."""


class NodeAffinity(Model, kw_only=True):
    """Node affinity is a group of node affinity scheduling rules."""

    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = None
    """The scheduler will prefer to schedule pods to nodes that satisfy the affinity expressions specified by this
    field, but it may choose a node that violates one or more of the expressions.
    """
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """If the affinity requirements specified by this field are not met at scheduling time, the pod will not be
    scheduled onto the node.
    """


class ObjectFieldSelector(Model, kw_only=True):
    """ObjectFieldSelector selects an APIVersioned field of an object."""

    api_version: str | None = None
    """Version of the schema the FieldPath is written in terms of, defaults to "v1"."""
    field_path: str
    """Path of the field to select in the specified API version."""


class PersistentVolumeClaimTemplate(Model, kw_only=True):
    """PersistentVolumeClaimTemplate is used to produce PersistentVolumeClaim objects as part of an
    EphemeralVolumeSource.
    """

    metadata: ObjectMeta | None = None
    """May contain labels and annotations that will be copied into the PVC when creating it."""
    spec: PersistentVolumeClaimSpec
    """The specification for the PersistentVolumeClaim."""


class PersistentVolumeClaimVolumeSource(Model, kw_only=True):
    """PersistentVolumeClaimVolumeSource references the user's PVC in the same namespace."""

    claim_name: str
    """claimName is the name of a PersistentVolumeClaim in the same namespace as the pod using this volume."""
    read_only: bool | None = None
    """readOnly Will force the ReadOnly setting in VolumeMounts."""


class PodAffinity(Model, kw_only=True):
    """Pod affinity is a group of inter pod affinity scheduling rules."""

    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = None
    """The scheduler will prefer to schedule pods to nodes that satisfy the affinity expressions specified by this
    field, but it may choose a node that violates one or more of the expressions.
    """
    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    """If the affinity requirements specified by this field are not met at scheduling time, the pod will not be
    scheduled onto the node.
    """


class PodAffinityTerm(Model, kw_only=True):
    """Defines a set of pods (namely those matching the labelSelector relative to the given namespace(s)) that this pod
    should be co-located (affinity) or not co-located (anti-affinity) with, where co-located is defined as running
    on a node whose value of the label with key <topologyKey> matches that of any node on which a pod of the set of
    pods is running
    """

    label_selector: LabelSelector | None = None
    """A label query over a set of resources, in this case pods."""
    match_label_keys: list[str] | None = None
    """MatchLabelKeys is a set of pod label keys to select which pods will be taken into consideration."""
    mismatch_label_keys: list[str] | None = None
    """MismatchLabelKeys is a set of pod label keys to select which pods will be taken into consideration."""
    namespace_selector: LabelSelector | None = None
    """A label query over the set of namespaces that the term applies to."""
    namespaces: list[str] | None = None
    """namespaces specifies a static list of namespace names that the term applies to."""
    topology_key: str
    """This pod should be co-located (affinity) or not co-located (anti-affinity) with the pods matching the
    labelSelector in the specified namespaces, where co-located is defined as running on a node whose value of the
    label with key topologyKey matches that of any node on which any of the selected pods is running.
    """


class PodAntiAffinity(Model, kw_only=True):
    """Pod anti affinity is a group of inter pod anti affinity scheduling rules."""

    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = None
    """The scheduler will prefer to schedule pods to nodes that satisfy the anti-affinity expressions specified by this
    field, but it may choose a node that violates one or more of the expressions.
    """
    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    """If the anti-affinity requirements specified by this field are not met at scheduling time, the pod will not be
    scheduled onto the node.
    """


class PodCertificateProjection(Model, kw_only=True):
    """PodCertificateProjection provides a private key and X.509 certificate in the pod filesystem."""

    certificate_chain_path: str | None = None
    """Write the certificate chain at this path in the projected volume."""
    credential_bundle_path: str | None = None
    """Write the credential bundle at this path in the projected volume."""
    key_path: str | None = None
    """Write the key at this path in the projected volume."""
    key_type: str
    """The type of keypair Kubelet will generate for the pod."""
    max_expiration_seconds: int | None = None
    """maxExpirationSeconds is the maximum lifetime permitted for the certificate."""
    signer_name: str
    """Kubelet's generated CSRs will be addressed to this signer."""
    user_annotations: dict[str, str] | None = None
    """userAnnotations allow pod authors to pass additional information to the signer implementation."""


class PodDNSConfig(Model, kw_only=True):
    """PodDNSConfig defines the DNS parameters of a pod in addition to those generated from DNSPolicy."""

    nameservers: list[str] | None = None
    """A list of DNS name server IP addresses."""
    options: list[PodDNSConfigOption] | None = None
    """A list of DNS resolver options."""
    searches: list[str] | None = None
    """A list of DNS search domains for host-name lookup."""


class PodDNSConfigOption(Model, kw_only=True):
    """PodDNSConfigOption defines DNS resolver options of a pod."""

    name: str | None = None
    """Name is this DNS resolver option's name."""
    value: str | None = None
    """Value is this DNS resolver option's value."""


class PodFailurePolicy(Model, kw_only=True):
    """PodFailurePolicy describes how failed pods influence the backoffLimit."""

    rules: list[PodFailurePolicyRule]
    """A list of pod failure policy rules."""


class PodFailurePolicyOnExitCodesRequirement(Model, kw_only=True):
    """PodFailurePolicyOnExitCodesRequirement describes the requirement for handling a failed pod based on its
    container exit codes.
    """

    container_name: str | None = None
    """Restricts the check for exit codes to the container with the specified name."""
    operator: str
    """Represents the relationship between the container exit code(s) and the specified values."""
    values: list[int]
    """Specifies the set of values."""


class PodFailurePolicyOnPodConditionsPattern(Model, kw_only=True):
    """PodFailurePolicyOnPodConditionsPattern describes a pattern for matching an actual pod condition type."""

    status: str | None = None
    """Specifies the required Pod condition status."""
    type: str
    """Specifies the required Pod condition type."""


class PodFailurePolicyRule(Model, kw_only=True):
    """PodFailurePolicyRule describes how a pod failure is handled when the requirements are met."""

    action: str
    """Specifies the action taken on a pod failure when the requirements are satisfied."""
    on_exit_codes: PodFailurePolicyOnExitCodesRequirement | None = None
    """Represents the requirement on the container exit codes."""
    on_pod_conditions: list[PodFailurePolicyOnPodConditionsPattern] | None = None
    """Represents the requirement on the pod conditions."""


class PodOS(Model, kw_only=True):
    """PodOS defines the OS parameters of a pod."""

    name: str
    """Name is the name of the operating system."""


class PodReadinessGate(Model, kw_only=True):
    """PodReadinessGate contains the reference to a pod condition"""

    condition_type: str
    """ConditionType refers to a condition in the pod's condition list with matching type."""


class PodResourceClaim(Model, kw_only=True):
    """PodResourceClaim references exactly one ResourceClaim, either directly or by naming a ResourceClaimTemplate
    which is then turned into a ResourceClaim for the pod.
    """

    name: str
    """Name uniquely identifies this resource claim inside the pod."""
    resource_claim_name: str | None = None
    """ResourceClaimName is the name of a ResourceClaim object in the same namespace as this pod."""
    resource_claim_template_name: str | None = None
    """ResourceClaimTemplateName is the name of a ResourceClaimTemplate object in the same namespace as this pod."""


class PodSchedulingGate(Model, kw_only=True):
    """PodSchedulingGate is associated to a Pod to guard its scheduling."""

    name: str
    """Name of the scheduling gate."""


class PodSchedulingGroup(Model, kw_only=True):
    """PodSchedulingGroup identifies the runtime scheduling group instance that a Pod belongs to."""

    pod_group_name: str | None = None
    """PodGroupName specifies the name of the standalone PodGroup object that represents the runtime instance of this
    group.
    """


class PodSecurityContext(Model, kw_only=True):
    """PodSecurityContext holds pod-level security attributes and common container settings."""

    app_armor_profile: AppArmorProfile | None = None
    """appArmorProfile is the AppArmor options to use by the containers in this pod."""
    fs_group: int | None = None
    """A special supplemental group that applies to all containers in a pod."""
    fs_group_change_policy: str | None = None
    """fsGroupChangePolicy defines behavior of changing ownership and permission of the volume before being exposed
    inside Pod.
    """
    run_as_group: int | None = None
    """The GID to run the entrypoint of the container process."""
    run_as_non_root: bool | None = None
    """Indicates that the container must run as a non-root user."""
    run_as_user: int | None = None
    """The UID to run the entrypoint of the container process."""
    se_linux_change_policy: str | None = None
    """seLinuxChangePolicy defines how the container's SELinux label is applied to all volumes used by the Pod."""
    se_linux_options: SELinuxOptions | None = None
    """The SELinux context to be applied to all containers."""
    seccomp_profile: SeccompProfile | None = None
    """The seccomp options to use by the containers in this pod."""
    supplemental_groups: list[int] | None = None
    """A list of groups applied to the first process run in each container, in addition to the container's primary GID
    and fsGroup (if specified).
    """
    supplemental_groups_policy: str | None = None
    """Defines how supplemental groups of the first container processes are calculated."""
    sysctls: list[Sysctl] | None = None
    """Sysctls hold a list of namespaced sysctls used for the pod."""
    windows_options: WindowsSecurityContextOptions | None = None
    """The Windows specific settings applied to all containers."""


class PodSpec(Model, kw_only=True):
    """PodSpec is a description of a pod."""

    active_deadline_seconds: int | None = None
    """Optional duration in seconds the pod may be active on the node relative to StartTime before the system will
    actively try to mark it failed and kill associated containers.
    """
    affinity: Affinity | None = None
    """If specified, the pod's scheduling constraints"""
    automount_service_account_token: bool | None = None
    """AutomountServiceAccountToken indicates whether a service account token should be automatically mounted."""
    containers: list[Container]
    """List of containers belonging to the pod."""
    dns_config: PodDNSConfig | None = None
    """Specifies the DNS parameters of a pod."""
    dns_policy: str | None = None
    """Set DNS policy for the pod."""
    enable_service_links: bool | None = None
    """EnableServiceLinks indicates whether information about services should be injected into pod's environment
    variables, matching the syntax of Docker links.
    """
    ephemeral_containers: list[EphemeralContainer] | None = None
    """List of ephemeral containers run in this pod."""
    host_aliases: list[HostAlias] | None = None
    """HostAliases is an optional list of hosts and IPs that will be injected into the pod's hosts file if specified.
    """
    host_ipc: bool | None = msgspec.field(default=None, name="hostIPC")
    """Use the host's ipc namespace."""
    host_network: bool | None = None
    """Host networking requested for this pod."""
    host_pid: bool | None = msgspec.field(default=None, name="hostPID")
    """Use the host's pid namespace."""
    host_users: bool | None = None
    """Use the host's user namespace."""
    hostname: str | None = None
    """Specifies the hostname of the Pod If not specified, the pod's hostname will be set to a system-defined value.
    """
    hostname_override: str | None = None
    """HostnameOverride specifies an explicit override for the pod's hostname as perceived by the pod."""
    image_pull_secrets: list[LocalObjectReference] | None = None
    """ImagePullSecrets is an optional list of references to secrets in the same namespace to use for pulling any of
    the images used by this PodSpec.
    """
    init_containers: list[Container] | None = None
    """List of initialization containers belonging to the pod."""
    node_name: str | None = None
    """NodeName indicates in which node this pod is scheduled."""
    node_selector: dict[str, str] | None = None
    """NodeSelector is a selector which must be true for the pod to fit on a node."""
    os: PodOS | None = None
    """Specifies the OS of the containers in the pod."""
    overhead: dict[str, str] | None = None
    """Overhead represents the resource overhead associated with running a pod for a given RuntimeClass."""
    preemption_policy: str | None = None
    """PreemptionPolicy is the Policy for preempting pods with lower priority."""
    priority: int | None = None
    """The priority value."""
    priority_class_name: str | None = None
    """If specified, indicates the pod's priority."""
    readiness_gates: list[PodReadinessGate] | None = None
    """If specified, all readiness gates will be evaluated for pod readiness."""
    resource_claims: list[PodResourceClaim] | None = None
    """ResourceClaims defines which ResourceClaims must be allocated and reserved before the Pod is allowed to start.
    """
    resources: ResourceRequirements | None = None
    """Resources is the total amount of CPU and Memory resources required by all containers in the pod."""
    restart_policy: str | None = None
    """Restart policy for all containers within the pod."""
    runtime_class_name: str | None = None
    """RuntimeClassName refers to a RuntimeClass object in the node.k8s.io group, which should be used to run this pod.
    """
    scheduler_name: str | None = None
    """If specified, the pod will be dispatched by specified scheduler."""
    scheduling_gates: list[PodSchedulingGate] | None = None
    """SchedulingGates is an opaque list of values that if specified will block scheduling the pod."""
    scheduling_group: PodSchedulingGroup | None = None
    """SchedulingGroup provides a reference to the immediate scheduling runtime grouping object that this Pod belongs
    to.
    """
    security_context: PodSecurityContext | None = None
    """SecurityContext holds pod-level security attributes and common container settings."""
    service_account: str | None = None
    """DeprecatedServiceAccount is a deprecated alias for ServiceAccountName."""
    service_account_name: str | None = None
    """ServiceAccountName is the name of the ServiceAccount to use to run this pod."""
    set_hostname_as_fqdn: bool | None = msgspec.field(default=None, name="setHostnameAsFQDN")
    """If true the pod's hostname will be configured as the pod's FQDN, rather than the leaf name (the default)."""
    share_process_namespace: bool | None = None
    """Share a single process namespace between all of the containers in a pod."""
    subdomain: str | None = None
    """If specified, the fully qualified Pod hostname will be "<hostname>.<subdomain>.<pod namespace>.svc.<cluster
    domain>".
    """
    termination_grace_period_seconds: int | None = None
    """Optional duration in seconds the pod needs to terminate gracefully."""
    tolerations: list[Toleration] | None = None
    """If specified, the pod's tolerations."""
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    """TopologySpreadConstraints describes how a group of pods ought to spread across topology domains."""
    volumes: list[Volume] | None = None
    """List of volumes that can be mounted by containers belonging to the pod."""


class PodTemplateSpec(Model, kw_only=True):
    """PodTemplateSpec describes the data a pod should have when created from a template"""

    metadata: ObjectMeta | None = None
    """Standard object's metadata."""
    spec: PodSpec | None = None
    """Specification of the desired behavior of the pod."""


class PreferredSchedulingTerm(Model, kw_only=True):
    """An empty preferred scheduling term matches all objects with implicit weight 0 (i.e. it's a no-op)."""

    preference: NodeSelectorTerm
    """A node selector term, associated with the corresponding weight."""
    weight: int
    """Weight associated with matching the corresponding nodeSelectorTerm, in the range 1-100."""


class Probe(Model, kw_only=True):
    """Probe describes a health check to be performed against a container to determine whether it is alive or ready to
    receive traffic.
    """

    exec: ExecAction | None = None
    """Exec specifies a command to execute in the container."""
    failure_threshold: int | None = None
    """Minimum consecutive failures for the probe to be considered failed after having succeeded."""
    grpc: GRPCAction | None = None
    """GRPC specifies a GRPC HealthCheckRequest."""
    http_get: HTTPGetAction | None = None
    """HTTPGet specifies an HTTP GET request to perform."""
    initial_delay_seconds: int | None = None
    """Number of seconds after the container has started before liveness probes are initiated."""
    period_seconds: int | None = None
    """How often (in seconds) to perform the probe."""
    success_threshold: int | None = None
    """Minimum consecutive successes for the probe to be considered successful after having failed."""
    tcp_socket: TCPSocketAction | None = None
    """TCPSocket specifies a connection to a TCP port."""
    termination_grace_period_seconds: int | None = None
    """Optional duration in seconds the pod needs to terminate gracefully upon probe failure."""
    timeout_seconds: int | None = None
    """Number of seconds after which the probe times out."""


class ProjectedVolumeSource(Model, kw_only=True):
    """Represents a projected volume source"""

    default_mode: int | None = None
    """defaultMode are the mode bits used to set permissions on created files by default."""
    sources: list[VolumeProjection] | None = None
    """sources is the list of volume projections."""


class RBDVolumeSource(Model, kw_only=True):
    """Represents a Rados Block Device mount that lasts the lifetime of a pod."""

    fs_type: str | None = None
    """fsType is the filesystem type of the volume that you want to mount."""
    image: str
    """image is the rados image name."""
    keyring: str | None = None
    """keyring is the path to key ring for RBDUser."""
    monitors: list[str]
    """monitors is a collection of Ceph monitors."""
    pool: str | None = None
    """pool is the rados pool name."""
    read_only: bool | None = None
    """readOnly here will force the ReadOnly setting in VolumeMounts."""
    secret_ref: LocalObjectReference | None = None
    """secretRef is name of the authentication secret for RBDUser."""
    user: str | None = None
    """user is the rados user name."""


class ResourceClaim(Model, kw_only=True):
    """ResourceClaim references one entry in PodSpec.ResourceClaims."""

    name: str
    """Name must match the name of one entry in pod.spec.resourceClaims of the Pod where this field is used."""
    request: str | None = None
    """Request is the name chosen for a request in the referenced claim."""


class ResourceFieldSelector(Model, kw_only=True):
    """ResourceFieldSelector represents container resources (cpu, memory) and their output format"""

    container_name: str | None = None
    """Container name: required for volumes, optional for env vars"""
    divisor: str | None = None
    """Specifies the output format of the exposed resources, defaults to "1" """
    resource: str
    """Required: resource to select"""


class ResourceRequirements(Model, kw_only=True):
    """ResourceRequirements describes the compute resource requirements."""

    claims: list[ResourceClaim] | None = None
    """Claims lists the names of resources, defined in spec.resourceClaims, that are used by this container."""
    limits: dict[str, str] | None = None
    """Limits describes the maximum amount of compute resources allowed."""
    requests: dict[str, str] | None = None
    """Requests describes the minimum amount of compute resources required."""


class SELinuxOptions(Model, kw_only=True):
    """SELinuxOptions are the labels to be applied to the container"""

    level: str | None = None
    """Level is SELinux level label that applies to the container."""
    role: str | None = None
    """Role is a SELinux role label that applies to the container."""
    type: str | None = None
    """Type is a SELinux type label that applies to the container."""
    user: str | None = None
    """User is a SELinux user label that applies to the container."""


class ScaleIOVolumeSource(Model, kw_only=True):
    """ScaleIOVolumeSource represents a persistent ScaleIO volume"""

    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    gateway: str
    """gateway is the host address of the ScaleIO API Gateway."""
    protection_domain: str | None = None
    """protectionDomain is the name of the ScaleIO Protection Domain for the configured storage."""
    read_only: bool | None = None
    """readOnly Defaults to false (read/write)."""
    secret_ref: LocalObjectReference
    """secretRef references to the secret for ScaleIO user and other sensitive information."""
    ssl_enabled: bool | None = None
    """sslEnabled Flag enable/disable SSL communication with Gateway, default false"""
    storage_mode: str | None = None
    """storageMode indicates whether the storage for a volume should be ThickProvisioned or ThinProvisioned."""
    storage_pool: str | None = None
    """storagePool is the ScaleIO Storage Pool associated with the protection domain."""
    system: str
    """system is the name of the storage system as configured in ScaleIO."""
    volume_name: str | None = None
    """volumeName is the name of a volume already created in the ScaleIO system that is associated with this volume
    source.
    """


class SeccompProfile(Model, kw_only=True):
    """SeccompProfile defines a pod/container's seccomp profile settings."""

    localhost_profile: str | None = None
    """localhostProfile indicates a profile defined in a file on the node should be used."""
    type: str
    """type indicates which kind of seccomp profile will be applied."""


class SecretEnvSource(Model, kw_only=True):
    """SecretEnvSource selects a Secret to populate the environment variables with."""

    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """Specify whether the Secret must be defined"""


class SecretKeySelector(Model, kw_only=True):
    """SecretKeySelector selects a key of a Secret."""

    key: str
    """The key of the secret to select from."""
    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """Specify whether the Secret or its key must be defined"""


class SecretProjection(Model, kw_only=True):
    """Adapts a secret into a projected volume."""

    items: list[KeyToPath] | None = None
    """items if unspecified, each key-value pair in the Data field of the referenced Secret will be projected into the
    volume as a file whose name is the key and content is the value.
    """
    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """optional field specify whether the Secret or its key must be defined"""


class SecretVolumeSource(Model, kw_only=True):
    """Adapts a Secret into a volume."""

    default_mode: int | None = None
    """defaultMode is Optional: mode bits used to set permissions on created files by default."""
    items: list[KeyToPath] | None = None
    """items If unspecified, each key-value pair in the Data field of the referenced Secret will be projected into the
    volume as a file whose name is the key and content is the value.
    """
    optional: bool | None = None
    """optional field specify whether the Secret or its keys must be defined"""
    secret_name: str | None = None
    """secretName is the name of the secret in the pod's namespace to use."""


class SecurityContext(Model, kw_only=True):
    """SecurityContext holds security configuration that will be applied to a container."""

    allow_privilege_escalation: bool | None = None
    """AllowPrivilegeEscalation controls whether a process can gain more privileges than its parent process."""
    app_armor_profile: AppArmorProfile | None = None
    """appArmorProfile is the AppArmor options to use by this container."""
    capabilities: Capabilities | None = None
    """The capabilities to add/drop when running containers."""
    privileged: bool | None = None
    """Run container in privileged mode."""
    proc_mount: str | None = None
    """procMount denotes the type of proc mount to use for the containers."""
    read_only_root_filesystem: bool | None = None
    """Whether this container has a read-only root filesystem."""
    run_as_group: int | None = None
    """The GID to run the entrypoint of the container process."""
    run_as_non_root: bool | None = None
    """Indicates that the container must run as a non-root user."""
    run_as_user: int | None = None
    """The UID to run the entrypoint of the container process."""
    se_linux_options: SELinuxOptions | None = None
    """The SELinux context to be applied to the container."""
    seccomp_profile: SeccompProfile | None = None
    """The seccomp options to use by this container."""
    windows_options: WindowsSecurityContextOptions | None = None
    """The Windows specific settings applied to all containers."""


class ServiceAccountTokenProjection(Model, kw_only=True):
    """ServiceAccountTokenProjection represents a projected service account token volume."""

    audience: str | None = None
    """audience is the intended audience of the token."""
    expiration_seconds: int | None = None
    """expirationSeconds is the requested duration of validity of the service account token."""
    path: str
    """path is the path relative to the mount point of the file to project the token into."""


class SleepAction(Model, kw_only=True):
    """SleepAction describes a "sleep" action."""

    seconds: int
    """Seconds is the number of seconds to sleep."""


class StorageOSVolumeSource(Model, kw_only=True):
    """Represents a StorageOS persistent volume resource."""

    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    secret_ref: LocalObjectReference | None = None
    """secretRef specifies the secret to use for obtaining the StorageOS API credentials."""
    volume_name: str | None = None
    """volumeName is the human-readable name of the StorageOS volume."""
    volume_namespace: str | None = None
    """volumeNamespace specifies the scope of the volume within StorageOS."""


class SuccessPolicy(Model, kw_only=True):
    """SuccessPolicy describes when a Job can be declared as succeeded based on the success of some indexes."""

    rules: list[SuccessPolicyRule]
    """rules represents the list of alternative rules for the declaring the Jobs as successful before
    `.status.succeeded >= .spec.completions`.
    """


class SuccessPolicyRule(Model, kw_only=True):
    """SuccessPolicyRule describes rule for declaring a Job as succeeded."""

    succeeded_count: int | None = None
    """succeededCount specifies the minimal required size of the actual set of the succeeded indexes for the Job."""
    succeeded_indexes: str | None = None
    """succeededIndexes specifies the set of indexes which need to be contained in the actual set of the succeeded
    indexes for the Job.
    """


class Sysctl(Model, kw_only=True):
    """Sysctl defines a kernel parameter to be set"""

    name: str
    """Name of a property to set"""
    value: str
    """Value of a property to set"""


class TCPSocketAction(Model, kw_only=True):
    """TCPSocketAction describes an action based on opening a socket"""

    host: str | None = None
    """Optional: Host name to connect to, defaults to the pod IP."""
    port: int | str
    """Number or name of the port to access on the container."""


class Toleration(Model, kw_only=True):
    """The pod this Toleration is attached to tolerates any taint that matches the triple <key,value,effect> using the
    matching operator <operator>.
    """

    effect: str | None = None
    """Effect indicates the taint effect to match."""
    key: str | None = None
    """Key is the taint key that the toleration applies to."""
    operator: str | None = None
    """Operator represents a key's relationship to the value."""
    toleration_seconds: int | None = None
    """TolerationSeconds represents the period of time the toleration (which must be of effect NoExecute, otherwise
    this field is ignored) tolerates the taint.
    """
    value: str | None = None
    """Value is the taint value the toleration matches to."""


class TopologySpreadConstraint(Model, kw_only=True):
    """TopologySpreadConstraint specifies how to spread matching pods among the given topology."""

    label_selector: LabelSelector | None = None
    """LabelSelector is used to find matching pods."""
    match_label_keys: list[str] | None = None
    """MatchLabelKeys is a set of pod label keys to select the pods over which spreading will be calculated."""
    max_skew: int
    """MaxSkew describes the degree to which pods may be unevenly distributed."""
    min_domains: int | None = None
    """MinDomains indicates a minimum number of eligible domains."""
    node_affinity_policy: str | None = None
    """NodeAffinityPolicy indicates how we will treat Pod's nodeAffinity/nodeSelector when calculating pod topology
    spread skew.
    """
    node_taints_policy: str | None = None
    """NodeTaintsPolicy indicates how we will treat node taints when calculating pod topology spread skew."""
    topology_key: str
    """TopologyKey is the key of node labels."""
    when_unsatisfiable: str
    """WhenUnsatisfiable indicates how to deal with a pod if it doesn't satisfy the spread constraint. - DoNotSchedule
    (default) tells the scheduler not to schedule it. - ScheduleAnyway tells the scheduler to schedule the pod in
    any location, but giving higher precedence to topologies that would help reduce the skew.
    """


class Volume(Model, kw_only=True):
    """Volume represents a named volume in a pod that may be accessed by any container in the pod."""

    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    """awsElasticBlockStore represents an AWS Disk resource that is attached to a kubelet's host machine and then
    exposed to the pod.
    """
    azure_disk: AzureDiskVolumeSource | None = None
    """azureDisk represents an Azure Data Disk mount on the host and bind mount to the pod."""
    azure_file: AzureFileVolumeSource | None = None
    """azureFile represents an Azure File Service mount on the host and bind mount to the pod."""
    cephfs: CephFSVolumeSource | None = None
    """cephFS represents a Ceph FS mount on the host that shares a pod's lifetime."""
    cinder: CinderVolumeSource | None = None
    """cinder represents a cinder volume attached and mounted on kubelets host machine."""
    config_map: ConfigMapVolumeSource | None = None
    """configMap represents a configMap that should populate this volume"""
    csi: CSIVolumeSource | None = None
    """csi (Container Storage Interface) represents ephemeral storage that is handled by certain external CSI drivers.
    """
    downward_api: DownwardAPIVolumeSource | None = msgspec.field(default=None, name="downwardAPI")
    """downwardAPI represents downward API about the pod that should populate this volume"""
    empty_dir: EmptyDirVolumeSource | None = None
    """emptyDir represents a temporary directory that shares a pod's lifetime."""
    ephemeral: EphemeralVolumeSource | None = None
    """ephemeral represents a volume that is handled by a cluster storage driver."""
    fc: FCVolumeSource | None = None
    """fc represents a Fibre Channel resource that is attached to a kubelet's host machine and then exposed to the pod.
    """
    flex_volume: FlexVolumeSource | None = None
    """flexVolume represents a generic volume resource that is provisioned/attached using an exec based plugin."""
    flocker: FlockerVolumeSource | None = None
    """flocker represents a Flocker volume attached to a kubelet's host machine."""
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    """gcePersistentDisk represents a GCE Disk resource that is attached to a kubelet's host machine and then exposed
    to the pod.
    """
    git_repo: GitRepoVolumeSource | None = None
    """gitRepo represents a git repository at a particular revision."""
    glusterfs: GlusterfsVolumeSource | None = None
    """glusterfs represents a Glusterfs mount on the host that shares a pod's lifetime."""
    host_path: HostPathVolumeSource | None = None
    """hostPath represents a pre-existing file or directory on the host machine that is directly exposed to the
    container.
    """
    image: ImageVolumeSource | None = None
    """image represents an OCI object (a container image or artifact) pulled and mounted on the kubelet's host machine.
    """
    iscsi: ISCSIVolumeSource | None = None
    """iscsi represents an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the
    pod.
    """
    name: str
    """name of the volume."""
    nfs: NFSVolumeSource | None = None
    """nfs represents an NFS mount on the host that shares a pod's lifetime More info:
    https://kubernetes.io/docs/concepts/storage/volumes#nfs
    """
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    """persistentVolumeClaimVolumeSource represents a reference to a PersistentVolumeClaim in the same namespace."""
    photon_persistent_disk: PhotonPersistentDiskVolumeSource | None = None
    """photonPersistentDisk represents a PhotonController persistent disk attached and mounted on kubelets host
    machine.
    """
    portworx_volume: PortworxVolumeSource | None = None
    """portworxVolume represents a portworx volume attached and mounted on kubelets host machine."""
    projected: ProjectedVolumeSource | None = None
    """projected items for all in one resources secrets, configmaps, and downward API"""
    quobyte: QuobyteVolumeSource | None = None
    """quobyte represents a Quobyte mount on the host that shares a pod's lifetime."""
    rbd: RBDVolumeSource | None = None
    """rbd represents a Rados Block Device mount on the host that shares a pod's lifetime."""
    scale_io: ScaleIOVolumeSource | None = msgspec.field(default=None, name="scaleIO")
    """scaleIO represents a ScaleIO persistent volume attached and mounted on Kubernetes nodes."""
    secret: SecretVolumeSource | None = None
    """secret represents a secret that should populate this volume."""
    storageos: StorageOSVolumeSource | None = None
    """storageOS represents a StorageOS volume attached and mounted on Kubernetes nodes."""
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None
    """vsphereVolume represents a vSphere volume attached and mounted on kubelets host machine."""


class VolumeDevice(Model, kw_only=True):
    """volumeDevice describes a mapping of a raw block device within a container."""

    device_path: str
    """devicePath is the path inside of the container that the device will be mapped to."""
    name: str
    """name must match the name of a persistentVolumeClaim in the pod"""


class VolumeMount(Model, kw_only=True):
    """VolumeMount describes a mounting of a Volume within a container."""

    mount_path: str
    """Path within the container at which the volume should be mounted."""
    mount_propagation: str | None = None
    """mountPropagation determines how mounts are propagated from the host to container and the other way around."""
    name: str
    """This must match the Name of a Volume."""
    read_only: bool | None = None
    """Mounted read-only if true, read-write otherwise (false or unspecified)."""
    recursive_read_only: str | None = None
    """RecursiveReadOnly specifies whether read-only mounts should be handled recursively."""
    sub_path: str | None = None
    """Path within the volume from which the container's volume should be mounted."""
    sub_path_expr: str | None = None
    """Expanded path within the volume from which the container's volume should be mounted."""


class VolumeProjection(Model, kw_only=True):
    """Projection that may be projected along with other supported volume types."""

    cluster_trust_bundle: ClusterTrustBundleProjection | None = None
    """ClusterTrustBundle allows a pod to access the `.spec.trustBundle` field of ClusterTrustBundle objects in an
    auto-updating file.
    """
    config_map: ConfigMapProjection | None = None
    """configMap information about the configMap data to project"""
    downward_api: DownwardAPIProjection | None = msgspec.field(default=None, name="downwardAPI")
    """downwardAPI information about the downwardAPI data to project"""
    pod_certificate: PodCertificateProjection | None = None
    """Projects an auto-rotating credential bundle (private key and certificate chain) that the pod can use either as a
    TLS client or server.
    """
    secret: SecretProjection | None = None
    """secret information about the secret data to project"""
    service_account_token: ServiceAccountTokenProjection | None = None
    """serviceAccountToken is information about the serviceAccountToken data to project"""


class WeightedPodAffinityTerm(Model, kw_only=True):
    """The weights of all of the matched WeightedPodAffinityTerm fields are added per-node to find the most preferred
    node(s)
    """

    pod_affinity_term: PodAffinityTerm
    """Required."""
    weight: int
    """weight associated with matching the corresponding podAffinityTerm, in the range 1-100."""


class WindowsSecurityContextOptions(Model, kw_only=True):
    """WindowsSecurityContextOptions contain Windows-specific options and credentials."""

    gmsa_credential_spec: str | None = None
    """GMSACredentialSpec is where the GMSA admission webhook (https://github.com/kubernetes-sigs/windows-gmsa) inlines
    the contents of the GMSA credential spec named by the GMSACredentialSpecName field.
    """
    gmsa_credential_spec_name: str | None = None
    """GMSACredentialSpecName is the name of the GMSA credential spec to use."""
    host_process: bool | None = None
    """HostProcess determines if a container should be run as a 'Host Process' container."""
    run_as_user_name: str | None = None
    """The UserName in Windows to run the entrypoint of the container process."""
