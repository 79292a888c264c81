"""What several kinds are made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.protocol.objects import Resource


class AWSElasticBlockStoreVolumeSource(Model, kw_only=True):
    """Represents a Persistent Disk resource in AWS."""

    fs_type: str | None = None
    """fsType is the filesystem type of the volume that you want to mount."""
    partition: int | None = None
    """partition is the partition in the volume that you want to mount."""
    read_only: bool | None = None
    """readOnly value true will force the readOnly setting in VolumeMounts."""
    volume_id: str = msgspec.field(name="volumeID")
    """volumeID is unique ID of the persistent disk resource in AWS (Amazon EBS volume)."""


class AzureDiskVolumeSource(Model, kw_only=True):
    """AzureDisk represents an Azure Data Disk mount on the host and bind mount to the pod."""

    caching_mode: str | None = None
    """cachingMode is the Host Caching mode: None, Read Only, Read Write."""
    disk_name: str
    """diskName is the Name of the data disk in the blob storage"""
    disk_uri: str = msgspec.field(name="diskURI")
    """diskURI is the URI of data disk in the blob storage"""
    fs_type: str | None = None
    """fsType is Filesystem type to mount."""
    kind: str | None = None
    """kind expected values are Shared: multiple blob disks per storage account Dedicated: single blob disk per storage
    account Managed: azure managed data disk (only in managed availability set). defaults to shared Possible enum
    values: - `"Dedicated"` - `"Managed"` - `"Shared"`
    """
    read_only: bool | None = None
    """readOnly Defaults to false (read/write)."""


class AzureFilePersistentVolumeSource(Model, kw_only=True):
    """AzureFile represents an Azure File Service mount on the host and bind mount to the pod."""

    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    secret_name: str
    """secretName is the name of secret that contains Azure Storage Account Name and Key"""
    secret_namespace: str | None = None
    """secretNamespace is the namespace of the secret that contains Azure Storage Account Name and Key default is the
    same as the Pod
    """
    share_name: str
    """shareName is the azure Share Name"""


class CSIPersistentVolumeSource(Model, kw_only=True):
    """Represents storage that is managed by an external CSI volume driver"""

    controller_expand_secret_ref: SecretReference | None = None
    """controllerExpandSecretRef is a reference to the secret object containing sensitive information to pass to the
    CSI driver to complete the CSI ControllerExpandVolume call.
    """
    controller_publish_secret_ref: SecretReference | None = None
    """controllerPublishSecretRef is a reference to the secret object containing sensitive information to pass to the
    CSI driver to complete the CSI ControllerPublishVolume and ControllerUnpublishVolume calls.
    """
    driver: str
    """driver is the name of the driver to use for this volume."""
    fs_type: str | None = None
    """fsType to mount."""
    node_expand_secret_ref: SecretReference | None = None
    """nodeExpandSecretRef is a reference to the secret object containing sensitive information to pass to the CSI
    driver to complete the CSI NodeExpandVolume call.
    """
    node_publish_secret_ref: SecretReference | None = None
    """nodePublishSecretRef is a reference to the secret object containing sensitive information to pass to the CSI
    driver to complete the CSI NodePublishVolume and NodeUnpublishVolume calls.
    """
    node_stage_secret_ref: SecretReference | None = None
    """nodeStageSecretRef is a reference to the secret object containing sensitive information to pass to the CSI
    driver to complete the CSI NodeStageVolume and NodeStageVolume and NodeUnstageVolume calls.
    """
    read_only: bool | None = None
    """readOnly value to pass to ControllerPublishVolumeRequest."""
    volume_attributes: dict[str, str] | None = None
    """volumeAttributes of the volume to publish."""
    volume_handle: str
    """volumeHandle is the unique volume name returned by the CSI volume plugin’s CreateVolume to refer to the volume
    on all subsequent calls.
    """


class CephFSPersistentVolumeSource(Model, kw_only=True):
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
    secret_ref: SecretReference | None = None
    """secretRef is Optional: SecretRef is reference to the authentication secret for User, default is empty."""
    user: str | None = None
    """user is Optional: User is the rados user name, default is admin More info:
    https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it
    """


class CinderPersistentVolumeSource(Model, kw_only=True):
    """Represents a cinder volume resource in Openstack."""

    fs_type: str | None = None
    """fsType Filesystem type to mount."""
    read_only: bool | None = None
    """readOnly is Optional: Defaults to false (read/write)."""
    secret_ref: SecretReference | None = None
    """secretRef is Optional: points to a secret object containing parameters used to connect to OpenStack."""
    volume_id: str = msgspec.field(name="volumeID")
    """volumeID used to identify the volume in cinder."""


class FCVolumeSource(Model, kw_only=True):
    """Represents a Fibre Channel volume."""

    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    lun: int | None = None
    """lun is Optional: FC target lun number"""
    read_only: bool | None = None
    """readOnly is Optional: Defaults to false (read/write)."""
    target_wwns: list[str] | None = msgspec.field(default=None, name="targetWWNs")
    """targetWWNs is Optional: FC target worldwide names (WWNs)"""
    wwids: list[str] | None = None
    """wwids Optional: FC volume world wide identifiers (wwids) Either wwids or combination of targetWWNs and lun must
    be set, but not both simultaneously.
    """


class FlexPersistentVolumeSource(Model, kw_only=True):
    """FlexPersistentVolumeSource represents a generic persistent volume resource that is provisioned/attached using an
    exec based plugin.
    """

    driver: str
    """driver is the name of the driver to use for this volume."""
    fs_type: str | None = None
    """fsType is the Filesystem type to mount."""
    options: dict[str, str] | None = None
    """options is Optional: this field holds extra command options if any."""
    read_only: bool | None = None
    """readOnly is Optional: defaults to false (read/write)."""
    secret_ref: SecretReference | None = None
    """secretRef is Optional: SecretRef is reference to the secret object containing sensitive information to pass to
    the plugin scripts.
    """


class FlockerVolumeSource(Model, kw_only=True):
    """Represents a Flocker volume mounted by the Flocker agent."""

    dataset_name: str | None = None
    """datasetName is Name of the dataset stored as metadata -> name on the dataset for Flocker should be considered as
    deprecated
    """
    dataset_uuid: str | None = msgspec.field(default=None, name="datasetUUID")
    """datasetUUID is the UUID of the dataset."""


class GCEPersistentDiskVolumeSource(Model, kw_only=True):
    """Represents a Persistent Disk resource in Google Compute Engine."""

    fs_type: str | None = None
    """fsType is filesystem type of the volume that you want to mount."""
    partition: int | None = None
    """partition is the partition in the volume that you want to mount."""
    pd_name: str
    """pdName is unique name of the PD resource in GCE."""
    read_only: bool | None = None
    """readOnly here will force the ReadOnly setting in VolumeMounts."""


class GlusterfsPersistentVolumeSource(Model, kw_only=True):
    """Represents a Glusterfs mount that lasts the lifetime of a pod."""

    endpoints: str
    """endpoints is the endpoint name that details Glusterfs topology."""
    endpoints_namespace: str | None = None
    """endpointsNamespace is the namespace that contains Glusterfs endpoint."""
    path: str
    """path is the Glusterfs volume path."""
    read_only: bool | None = None
    """readOnly here will force the Glusterfs volume to be mounted with read-only permissions."""


class HostPathVolumeSource(Model, kw_only=True):
    """Represents a host path mapped into a pod."""

    path: str
    """path of the directory on the host."""
    type: str | None = None
    """type for HostPath Volume Defaults to "" More info: https://kubernetes.io/docs/concepts/storage/volumes#hostpath
    Possible enum values: - `""` For backwards compatible, leave it empty if unset - `"BlockDevice"` A block device
    must exist at the given path - `"CharDevice"` A character device must exist at the given path - `"Directory"` A
    directory must exist at the given path - `"DirectoryOrCreate"` If nothing exists at the given path, an empty
    directory will be created there as needed with file mode 0755, having the same group and ownership with Kubelet.
    - `"File"` A file must exist at the given path - `"FileOrCreate"` If nothing exists at the given path, an empty
    file will be created there as needed with file mode 0644, having the same group and ownership with Kubelet. -
    `"Socket"` A UNIX socket must exist at the given path
    """


class ISCSIPersistentVolumeSource(Model, kw_only=True):
    """ISCSIPersistentVolumeSource represents an ISCSI disk."""

    chap_auth_discovery: bool | None = None
    """chapAuthDiscovery defines whether support iSCSI Discovery CHAP authentication"""
    chap_auth_session: bool | None = None
    """chapAuthSession defines whether support iSCSI Session CHAP authentication"""
    fs_type: str | None = None
    """fsType is the filesystem type of the volume that you want to mount."""
    initiator_name: str | None = None
    """initiatorName is the custom iSCSI Initiator Name."""
    iqn: str
    """iqn is Target iSCSI Qualified Name."""
    iscsi_interface: str | None = None
    """iscsiInterface is the interface Name that uses an iSCSI transport."""
    lun: int
    """lun is iSCSI Target Lun number."""
    portals: list[str] | None = None
    """portals is the iSCSI Target Portal List."""
    read_only: bool | None = None
    """readOnly here will force the ReadOnly setting in VolumeMounts."""
    secret_ref: SecretReference | None = None
    """secretRef is the CHAP Secret for iSCSI target and initiator authentication"""
    target_portal: str
    """targetPortal is iSCSI Target Portal."""


class LabelSelector(Model, kw_only=True):
    """A label selector is a label query over a set of resources."""

    match_expressions: list[LabelSelectorRequirement] | None = None
    """matchExpressions is a list of label selector requirements."""
    match_labels: dict[str, str] | None = None
    """matchLabels is a map of {key,value} pairs."""


class LabelSelectorRequirement(Model, kw_only=True):
    """A label selector requirement is a selector that contains values, a key, and an operator that relates the key and
    values.
    """

    key: str
    """key is the label key that the selector applies to."""
    operator: str
    """operator represents a key's relationship to a set of values."""
    values: list[str] | None = None
    """values is an array of string values."""


class LocalObjectReference(Model, kw_only=True):
    """LocalObjectReference contains enough information to let you locate the referenced object inside the same
    namespace.
    """

    name: str | None = None
    """Name of the referent."""


class LocalVolumeSource(Model, kw_only=True):
    """Local represents directly-attached storage with node affinity"""

    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    path: str
    """path of the full path to the volume on the node."""


class MatchCondition(Model, kw_only=True):
    """MatchCondition represents a condition which must by fulfilled for a request to be sent to a webhook."""

    expression: str
    """expression represents the expression which will be evaluated by CEL."""
    name: str
    """name is an identifier for this match condition, used for strategic merging of MatchConditions, as well as
    providing an identifier for logging purposes.
    """


class ModifyVolumeStatus(Model, kw_only=True):
    """ModifyVolumeStatus represents the status object of ControllerModifyVolume operation"""

    status: str
    """status is the status of the ControllerModifyVolume operation."""
    target_volume_attributes_class_name: str | None = None
    """targetVolumeAttributesClassName is the name of the VolumeAttributesClass the PVC currently being reconciled
    """


class NFSVolumeSource(Model, kw_only=True):
    """Represents an NFS mount that lasts the lifetime of a pod."""

    path: str
    """path that is exported by the NFS server."""
    read_only: bool | None = None
    """readOnly here will force the NFS export to be mounted with read-only permissions."""
    server: str
    """server is the hostname or IP address of the NFS server."""


class NodeSelector(Model, kw_only=True):
    """A node selector represents the union of the results of one or more label queries over a set of nodes; that is,
    it represents the OR of the selectors represented by the node selector terms.
    """

    node_selector_terms: list[NodeSelectorTerm]
    """Required."""


class NodeSelectorRequirement(Model, kw_only=True):
    """A node selector requirement is a selector that contains values, a key, and an operator that relates the key and
    values.
    """

    key: str
    """The label key that the selector applies to."""
    operator: str
    """Represents a key's relationship to a set of values."""
    values: list[str] | None = None
    """An array of string values."""


class NodeSelectorTerm(Model, kw_only=True):
    """A null or empty node selector term matches no objects."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    """A list of node selector requirements by node's labels."""
    match_fields: list[NodeSelectorRequirement] | None = None
    """A list of node selector requirements by node's fields."""


class ObjectReference(Model, kw_only=True):
    """ObjectReference contains enough information to let you inspect or modify the referred object."""

    api_version: str | None = None
    """API version of the referent."""
    field_path: str | None = None
    """If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go
    field access statement, such as desiredState.manifest.containers[2].
    """
    kind: str | None = None
    """Kind of the referent."""
    name: str | None = None
    """Name of the referent."""
    namespace: str | None = None
    """Namespace of the referent."""
    resource_version: str | None = None
    """Specific resourceVersion to which this reference is made, if any."""
    uid: str | None = None
    """UID of the referent."""


class PersistentVolumeClaim(Kind, kw_only=True):
    """PersistentVolumeClaim is a user's request for and claim to a persistent volume"""

    resource: ClassVar[Resource] = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")

    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=lambda: PersistentVolumeClaimSpec())
    """spec defines the desired characteristics of a volume requested by a pod author."""
    status: PersistentVolumeClaimStatus = msgspec.field(default_factory=lambda: PersistentVolumeClaimStatus())
    """status represents the current information/status of a persistent volume claim."""


class PersistentVolumeClaimCondition(Model, kw_only=True):
    """PersistentVolumeClaimCondition contains details about state of pvc"""

    last_probe_time: datetime | None = None
    """lastProbeTime is the time we probed the condition."""
    last_transition_time: datetime | None = None
    """lastTransitionTime is the time the condition transitioned from one status to another."""
    message: str | None = None
    """message is the human-readable message indicating details about last transition."""
    reason: str | None = None
    """reason is a unique, this should be a short, machine understandable string that gives the reason for condition's
    last transition.
    """
    status: str
    """Status is the status of the condition."""
    type: str
    """Type is the type of the condition."""


class PersistentVolumeClaimSpec(Model, kw_only=True):
    """PersistentVolumeClaimSpec describes the common attributes of storage devices and allows a Source for
    provider-specific attributes
    """

    access_modes: list[str] | None = None
    """accessModes contains the desired access modes the volume should have."""
    data_source: TypedLocalObjectReference | None = None
    """dataSource field can be used to specify either: * An existing VolumeSnapshot object
    (snapshot.storage.k8s.io/VolumeSnapshot) * An existing PVC (PersistentVolumeClaim) If the provisioner or an
    external controller can support the specified data source, it will create a new volume based on the contents of
    the specified data source.
    """
    data_source_ref: TypedObjectReference | None = None
    """dataSourceRef specifies the object from which to populate the volume with data, if a non-empty volume is
    desired.
    """
    resources: VolumeResourceRequirements | None = None
    """resources represents the minimum resources the volume should have."""
    selector: LabelSelector | None = None
    """selector is a label query over volumes to consider for binding."""
    storage_class_name: str | None = None
    """storageClassName is the name of the StorageClass required by the claim."""
    volume_attributes_class_name: str | None = None
    """volumeAttributesClassName may be used to set the VolumeAttributesClass used by this claim."""
    volume_mode: str | None = None
    """volumeMode defines what type of volume is required by the claim."""
    volume_name: str | None = None
    """volumeName is the binding reference to the PersistentVolume backing this claim."""


class PersistentVolumeClaimStatus(Model, kw_only=True):
    """PersistentVolumeClaimStatus is the current status of a persistent volume claim."""

    access_modes: list[str] | None = None
    """accessModes contains the actual access modes the volume backing the PVC has."""
    allocated_resource_statuses: dict[str, str] | None = None
    """allocatedResourceStatuses stores status of resource being resized for the given PVC."""
    allocated_resources: dict[str, str] | None = None
    """allocatedResources tracks the resources allocated to a PVC including its capacity."""
    capacity: dict[str, str] | None = None
    """capacity represents the actual resources of the underlying volume."""
    conditions: list[PersistentVolumeClaimCondition] | None = None
    """conditions is the current Condition of persistent volume claim."""
    current_volume_attributes_class_name: str | None = None
    """currentVolumeAttributesClassName is the current name of the VolumeAttributesClass the PVC is using."""
    modify_volume_status: ModifyVolumeStatus | None = None
    """ModifyVolumeStatus represents the status object of ControllerModifyVolume operation."""
    phase: str | None = None
    """phase represents the current phase of PersistentVolumeClaim."""


class PersistentVolumeSpec(Model, kw_only=True):
    """PersistentVolumeSpec is the specification of a persistent volume."""

    access_modes: list[str] | None = None
    """accessModes contains all ways the volume can be mounted."""
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    """awsElasticBlockStore represents an AWS Disk resource that is attached to a kubelet's host machine and then
    exposed to the pod.
    """
    azure_disk: AzureDiskVolumeSource | None = None
    """azureDisk represents an Azure Data Disk mount on the host and bind mount to the pod."""
    azure_file: AzureFilePersistentVolumeSource | None = None
    """azureFile represents an Azure File Service mount on the host and bind mount to the pod."""
    capacity: dict[str, str] | None = None
    """capacity is the description of the persistent volume's resources and capacity."""
    cephfs: CephFSPersistentVolumeSource | None = None
    """cephFS represents a Ceph FS mount on the host that shares a pod's lifetime."""
    cinder: CinderPersistentVolumeSource | None = None
    """cinder represents a cinder volume attached and mounted on kubelets host machine."""
    claim_ref: ObjectReference | None = None
    """claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim."""
    csi: CSIPersistentVolumeSource | None = None
    """csi represents storage that is handled by an external CSI driver."""
    fc: FCVolumeSource | None = None
    """fc represents a Fibre Channel resource that is attached to a kubelet's host machine and then exposed to the pod.
    """
    flex_volume: FlexPersistentVolumeSource | None = None
    """flexVolume represents a generic volume resource that is provisioned/attached using an exec based plugin."""
    flocker: FlockerVolumeSource | None = None
    """flocker represents a Flocker volume attached to a kubelet's host machine and exposed to the pod for its usage.
    """
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    """gcePersistentDisk represents a GCE Disk resource that is attached to a kubelet's host machine and then exposed
    to the pod.
    """
    glusterfs: GlusterfsPersistentVolumeSource | None = None
    """glusterfs represents a Glusterfs volume that is attached to a host and exposed to the pod."""
    host_path: HostPathVolumeSource | None = None
    """hostPath represents a directory on the host."""
    iscsi: ISCSIPersistentVolumeSource | None = None
    """iscsi represents an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the
    pod.
    """
    local: LocalVolumeSource | None = None
    """local represents directly-attached storage with node affinity"""
    mount_options: list[str] | None = None
    """mountOptions is the list of mount options, e.g. ["ro", "soft"]."""
    nfs: NFSVolumeSource | None = None
    """nfs represents an NFS mount on the host."""
    node_affinity: VolumeNodeAffinity | None = None
    """nodeAffinity defines constraints that limit what nodes this volume can be accessed from."""
    persistent_volume_reclaim_policy: str | None = None
    """persistentVolumeReclaimPolicy defines what happens to a persistent volume when released from its claim."""
    photon_persistent_disk: PhotonPersistentDiskVolumeSource | None = None
    """photonPersistentDisk represents a PhotonController persistent disk attached and mounted on kubelets host
    machine.
    """
    portworx_volume: PortworxVolumeSource | None = None
    """portworxVolume represents a portworx volume attached and mounted on kubelets host machine."""
    quobyte: QuobyteVolumeSource | None = None
    """quobyte represents a Quobyte mount on the host that shares a pod's lifetime."""
    rbd: RBDPersistentVolumeSource | None = None
    """rbd represents a Rados Block Device mount on the host that shares a pod's lifetime."""
    scale_io: ScaleIOPersistentVolumeSource | None = msgspec.field(default=None, name="scaleIO")
    """scaleIO represents a ScaleIO persistent volume attached and mounted on Kubernetes nodes."""
    storage_class_name: str | None = None
    """storageClassName is the name of StorageClass to which this persistent volume belongs."""
    storageos: StorageOSPersistentVolumeSource | None = None
    """storageOS represents a StorageOS volume that is attached to the kubelet's host machine and mounted into the pod.
    """
    volume_attributes_class_name: str | None = None
    """Name of VolumeAttributesClass to which this persistent volume belongs."""
    volume_mode: str | None = None
    """volumeMode defines if a volume is intended to be used with a formatted filesystem or to remain in raw block
    state.
    """
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None
    """vsphereVolume represents a vSphere volume attached and mounted on kubelets host machine."""


class PhotonPersistentDiskVolumeSource(Model, kw_only=True):
    """Represents a Photon Controller persistent disk resource."""

    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    pd_id: str = msgspec.field(name="pdID")
    """pdID is the ID that identifies Photon Controller persistent disk"""


class PolicyRule(Model, kw_only=True):
    """PolicyRule holds information that describes a policy rule, but does not contain information about who the rule
    applies to or which namespace the rule applies to.
    """

    api_groups: list[str] | None = None
    """APIGroups is the name of the APIGroup that contains the resources."""
    non_resource_urls: list[str] | None = msgspec.field(default=None, name="nonResourceURLs")
    """NonResourceURLs is a set of partial urls that a user should have access to. *s are allowed, but only as the
    full, final step in the path Since non-resource URLs are not namespaced, this field is only applicable for
    ClusterRoles referenced from a ClusterRoleBinding.
    """
    resource_names: list[str] | None = None
    """ResourceNames is an optional white list of names that the rule applies to."""
    resources: list[str] | None = None
    """Resources is a list of resources this rule applies to."""
    verbs: list[str]
    """Verbs is a list of Verbs that apply to ALL the ResourceKinds contained in this rule."""


class PortworxVolumeSource(Model, kw_only=True):
    """PortworxVolumeSource represents a Portworx volume resource."""

    fs_type: str | None = None
    """fSType represents the filesystem type to mount Must be a filesystem type supported by the host operating system.
    """
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    volume_id: str = msgspec.field(name="volumeID")
    """volumeID uniquely identifies a Portworx volume"""


class QuobyteVolumeSource(Model, kw_only=True):
    """Represents a Quobyte mount that lasts the lifetime of a pod."""

    group: str | None = None
    """group to map volume access to Default is no group"""
    read_only: bool | None = None
    """readOnly here will force the Quobyte volume to be mounted with read-only permissions."""
    registry: str
    """registry represents a single or multiple Quobyte Registry services specified as a string as host:port pair
    (multiple entries are separated with commas) which acts as the central registry for volumes
    """
    tenant: str | None = None
    """tenant owning the given Quobyte volume in the Backend Used with dynamically provisioned Quobyte volumes, value
    is set by the plugin
    """
    user: str | None = None
    """user to map volume access to Defaults to serivceaccount user"""
    volume: str
    """volume is a string that references an already created Quobyte volume by name."""


class RBDPersistentVolumeSource(Model, kw_only=True):
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
    secret_ref: SecretReference | None = None
    """secretRef is name of the authentication secret for RBDUser."""
    user: str | None = None
    """user is the rados user name."""


class RoleRef(Model, kw_only=True):
    """RoleRef contains information that points to the role being used"""

    api_group: str | None = None
    """APIGroup is the group for the resource being referenced"""
    kind: str
    """Kind is the type of resource being referenced"""
    name: str
    """Name is the name of resource being referenced"""


class RuleWithOperations(Model, kw_only=True):
    """RuleWithOperations is a tuple of Operations and Resources."""

    api_groups: list[str] | None = None
    """apiGroups is the API groups the resources belong to."""
    api_versions: list[str] | None = None
    """apiVersions is the API versions the resources belong to."""
    operations: list[str] | None = None
    """operations is the operations the admission hook cares about - CREATE, UPDATE, DELETE, CONNECT or * for all of
    those operations and any future admission operations that are added.
    """
    resources: list[str] | None = None
    """resources is a list of resources this rule applies to."""
    scope: str | None = None
    """scope specifies the scope of this rule."""


class ScaleIOPersistentVolumeSource(Model, kw_only=True):
    """ScaleIOPersistentVolumeSource represents a persistent ScaleIO volume"""

    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    gateway: str
    """gateway is the host address of the ScaleIO API Gateway."""
    protection_domain: str | None = None
    """protectionDomain is the name of the ScaleIO Protection Domain for the configured storage."""
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    secret_ref: SecretReference
    """secretRef references to the secret for ScaleIO user and other sensitive information."""
    ssl_enabled: bool | None = None
    """sslEnabled is the flag to enable/disable SSL communication with Gateway, default false"""
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


class SecretReference(Model, kw_only=True):
    """SecretReference represents a Secret Reference."""

    name: str | None = None
    """name is unique within a namespace to reference a secret resource."""
    namespace: str | None = None
    """namespace defines the space within which the secret name must be unique."""


class ServiceReference(Model, kw_only=True):
    """ServiceReference holds a reference to Service.legacy.k8s.io"""

    name: str
    """name is the name of the service."""
    namespace: str
    """namespace is the namespace of the service."""
    path: str | None = None
    """path is an optional URL path which will be sent in any request to this service."""
    port: int | None = None
    """port is the port on the service that hosts the webhook."""


class StorageOSPersistentVolumeSource(Model, kw_only=True):
    """Represents a StorageOS persistent volume resource."""

    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    secret_ref: ObjectReference | None = None
    """secretRef specifies the secret to use for obtaining the StorageOS API credentials."""
    volume_name: str | None = None
    """volumeName is the human-readable name of the StorageOS volume."""
    volume_namespace: str | None = None
    """volumeNamespace specifies the scope of the volume within StorageOS."""


class Subject(Model, kw_only=True):
    """Subject contains a reference to the object or user identities a role binding applies to."""

    api_group: str | None = None
    """APIGroup holds the API group of the referenced subject."""
    kind: str
    """Kind of object being referenced."""
    name: str
    """Name of the object being referenced."""
    namespace: str | None = None
    """Namespace of the referenced object."""


class TypedLocalObjectReference(Model, kw_only=True):
    """TypedLocalObjectReference contains enough information to let you locate the typed referenced object inside the
    same namespace.
    """

    api_group: str | None = None
    """APIGroup is the group for the resource being referenced."""
    kind: str
    """Kind is the type of resource being referenced"""
    name: str
    """Name is the name of resource being referenced"""


class TypedObjectReference(Model, kw_only=True):
    """TypedObjectReference contains enough information to let you locate the typed referenced object"""

    api_group: str | None = None
    """APIGroup is the group for the resource being referenced."""
    kind: str
    """Kind is the type of resource being referenced"""
    name: str
    """Name is the name of resource being referenced"""
    namespace: str | None = None
    """Namespace is the namespace of resource being referenced Note that when a namespace is specified, a
    gateway.networking.k8s.io/ReferenceGrant object is required in the referent namespace to allow that namespace's
    owner to accept the reference.
    """


class VolumeNodeAffinity(Model, kw_only=True):
    """VolumeNodeAffinity defines constraints that limit what nodes this volume can be accessed from."""

    required: NodeSelector | None = None
    """required specifies hard node constraints that must be met."""


class VolumeResourceRequirements(Model, kw_only=True):
    """VolumeResourceRequirements describes the storage resource requirements for a volume."""

    limits: dict[str, str] | None = None
    """Limits describes the maximum amount of compute resources allowed."""
    requests: dict[str, str] | None = None
    """Requests describes the minimum amount of compute resources required."""


class VsphereVirtualDiskVolumeSource(Model, kw_only=True):
    """Represents a vSphere volume resource."""

    fs_type: str | None = None
    """fsType is filesystem type to mount."""
    storage_policy_id: str | None = msgspec.field(default=None, name="storagePolicyID")
    """storagePolicyID is the storage Policy Based Management (SPBM) profile ID associated with the StoragePolicyName.
    """
    storage_policy_name: str | None = None
    """storagePolicyName is the storage Policy Based Management (SPBM) profile name."""
    volume_path: str
    """volumePath is the path that identifies vSphere volume vmdk"""


class WebhookClientConfig(Model, kw_only=True):
    """WebhookClientConfig contains the information to make a TLS connection with the webhook"""

    ca_bundle: bytes | None = None
    """caBundle is a PEM encoded CA bundle which will be used to validate the webhook's server certificate."""
    service: ServiceReference | None = None
    """service is a reference to the service for this webhook."""
    url: str | None = None
    """url gives the location of the webhook, in standard URL form (`scheme://host:port/path`)."""
