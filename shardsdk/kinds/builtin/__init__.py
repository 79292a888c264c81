"""Kubernetes' own kinds, and what they are made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shardsdk.kinds.builtin.clusterrole import *
    from shardsdk.kinds.builtin.clusterrolebinding import *
    from shardsdk.kinds.builtin.configmap import *
    from shardsdk.kinds.builtin.controllerrevision import *
    from shardsdk.kinds.builtin.cronjob import *
    from shardsdk.kinds.builtin.daemonset import *
    from shardsdk.kinds.builtin.deployment import *
    from shardsdk.kinds.builtin.endpointslice import *
    from shardsdk.kinds.builtin.event import *
    from shardsdk.kinds.builtin.horizontalpodautoscaler import *
    from shardsdk.kinds.builtin.ingress import *
    from shardsdk.kinds.builtin.ingressclass import *
    from shardsdk.kinds.builtin.job import *
    from shardsdk.kinds.builtin.lease import *
    from shardsdk.kinds.builtin.limitrange import *
    from shardsdk.kinds.builtin.mutatingwebhookconfiguration import *
    from shardsdk.kinds.builtin.namespace import *
    from shardsdk.kinds.builtin.networkpolicy import *
    from shardsdk.kinds.builtin.node import *
    from shardsdk.kinds.builtin.persistentvolume import *
    from shardsdk.kinds.builtin.pod import *
    from shardsdk.kinds.builtin.poddisruptionbudget import *
    from shardsdk.kinds.builtin.pods import *
    from shardsdk.kinds.builtin.priorityclass import *
    from shardsdk.kinds.builtin.replicaset import *
    from shardsdk.kinds.builtin.resourcequota import *
    from shardsdk.kinds.builtin.role import *
    from shardsdk.kinds.builtin.rolebinding import *
    from shardsdk.kinds.builtin.secret import *
    from shardsdk.kinds.builtin.service import *
    from shardsdk.kinds.builtin.serviceaccount import *
    from shardsdk.kinds.builtin.shared import *
    from shardsdk.kinds.builtin.statefulset import *
    from shardsdk.kinds.builtin.storageclass import *
    from shardsdk.kinds.builtin.validatingwebhookconfiguration import *
    from shardsdk.kinds.builtin.volumeattachment import *

__all__ = [
    "AWSElasticBlockStoreVolumeSource", "Affinity", "AggregationRule", "AppArmorProfile", "AttachedVolume",
    "AzureDiskVolumeSource", "AzureFilePersistentVolumeSource", "AzureFileVolumeSource",
    "CSIPersistentVolumeSource", "CSIVolumeSource", "Capabilities", "CephFSPersistentVolumeSource",
    "CephFSVolumeSource", "CinderPersistentVolumeSource", "CinderVolumeSource", "ClientIPConfig", "ClusterRole",
    "ClusterRoleBinding", "ClusterTrustBundleProjection", "ConfigMap", "ConfigMapEnvSource", "ConfigMapKeySelector",
    "ConfigMapNodeConfigSource", "ConfigMapProjection", "ConfigMapVolumeSource", "Container",
    "ContainerExtendedResourceRequest", "ContainerImage", "ContainerPort", "ContainerResizePolicy",
    "ContainerResourceMetricSource", "ContainerResourceMetricStatus", "ContainerRestartRule",
    "ContainerRestartRuleOnExitCodes", "ContainerState", "ContainerStateRunning", "ContainerStateTerminated",
    "ContainerStateWaiting", "ContainerStatus", "ContainerUser", "ControllerRevision", "CronJob", "CronJobSpec",
    "CronJobStatus", "CrossVersionObjectReference", "DaemonEndpoint", "DaemonSet", "DaemonSetCondition",
    "DaemonSetSpec", "DaemonSetStatus", "DaemonSetUpdateStrategy", "Deployment", "DeploymentCondition",
    "DeploymentSpec", "DeploymentStatus", "DeploymentStrategy", "DownwardAPIProjection", "DownwardAPIVolumeFile",
    "DownwardAPIVolumeSource", "EmptyDirVolumeSource", "Endpoint", "EndpointConditions", "EndpointHints",
    "EndpointPort", "EndpointSlice", "EnvFromSource", "EnvVar", "EnvVarSource", "EphemeralContainer",
    "EphemeralVolumeSource", "Event", "EventSeries", "EventSource", "ExecAction", "ExternalMetricSource",
    "ExternalMetricStatus", "FCVolumeSource", "FileKeySelector", "FlexPersistentVolumeSource", "FlexVolumeSource",
    "FlockerVolumeSource", "ForNode", "ForZone", "GCEPersistentDiskVolumeSource", "GRPCAction",
    "GitRepoVolumeSource", "GlusterfsPersistentVolumeSource", "GlusterfsVolumeSource", "HPAScalingPolicy",
    "HPAScalingRules", "HTTPGetAction", "HTTPHeader", "HTTPIngressPath", "HTTPIngressRuleValue",
    "HorizontalPodAutoscaler", "HorizontalPodAutoscalerBehavior", "HorizontalPodAutoscalerCondition",
    "HorizontalPodAutoscalerSpec", "HorizontalPodAutoscalerStatus", "HostAlias", "HostIP", "HostPathVolumeSource",
    "IPBlock", "ISCSIPersistentVolumeSource", "ISCSIVolumeSource", "ImageVolumeSource", "ImageVolumeStatus",
    "Ingress", "IngressBackend", "IngressClass", "IngressClassParametersReference", "IngressClassSpec",
    "IngressLoadBalancerIngress", "IngressLoadBalancerStatus", "IngressPortStatus", "IngressRule",
    "IngressServiceBackend", "IngressSpec", "IngressStatus", "IngressTLS", "Job", "JobCondition", "JobSpec",
    "JobStatus", "JobTemplateSpec", "KeyToPath", "LabelSelector", "LabelSelectorRequirement", "Lease", "LeaseSpec",
    "Lifecycle", "LifecycleHandler", "LimitRange", "LimitRangeItem", "LimitRangeSpec", "LinuxContainerUser",
    "LoadBalancerIngress", "LoadBalancerStatus", "LocalObjectReference", "LocalVolumeSource", "MatchCondition",
    "MetricIdentifier", "MetricSpec", "MetricStatus", "MetricTarget", "MetricValueStatus", "ModifyVolumeStatus",
    "MutatingWebhook", "MutatingWebhookConfiguration", "NFSVolumeSource", "Namespace", "NamespaceCondition",
    "NamespaceSpec", "NamespaceStatus", "NetworkPolicy", "NetworkPolicyEgressRule", "NetworkPolicyIngressRule",
    "NetworkPolicyPeer", "NetworkPolicyPort", "NetworkPolicySpec", "Node", "NodeAddress", "NodeAffinity",
    "NodeAllocatableResourceClaimStatus", "NodeCondition", "NodeConfigSource", "NodeConfigStatus",
    "NodeDaemonEndpoints", "NodeFeatures", "NodeRuntimeHandler", "NodeRuntimeHandlerFeatures", "NodeSelector",
    "NodeSelectorRequirement", "NodeSelectorTerm", "NodeSpec", "NodeStatus", "NodeSwapStatus", "NodeSystemInfo",
    "ObjectFieldSelector", "ObjectMetricSource", "ObjectMetricStatus", "ObjectReference", "PersistentVolume",
    "PersistentVolumeClaim", "PersistentVolumeClaimCondition", "PersistentVolumeClaimSpec",
    "PersistentVolumeClaimStatus", "PersistentVolumeClaimTemplate", "PersistentVolumeClaimVolumeSource",
    "PersistentVolumeSpec", "PersistentVolumeStatus", "PhotonPersistentDiskVolumeSource", "Pod", "PodAffinity",
    "PodAffinityTerm", "PodAntiAffinity", "PodCertificateProjection", "PodCondition", "PodDNSConfig",
    "PodDNSConfigOption", "PodDisruptionBudget", "PodDisruptionBudgetSpec", "PodDisruptionBudgetStatus",
    "PodExtendedResourceClaimStatus", "PodFailurePolicy", "PodFailurePolicyOnExitCodesRequirement",
    "PodFailurePolicyOnPodConditionsPattern", "PodFailurePolicyRule", "PodIP", "PodOS", "PodReadinessGate",
    "PodResourceClaim", "PodResourceClaimStatus", "PodSchedulingGate", "PodSchedulingGroup", "PodSecurityContext",
    "PodSpec", "PodStatus", "PodTemplateSpec", "PodsMetricSource", "PodsMetricStatus", "PolicyRule", "PortStatus",
    "PortworxVolumeSource", "PreferredSchedulingTerm", "PriorityClass", "Probe", "ProjectedVolumeSource",
    "QuobyteVolumeSource", "RBDPersistentVolumeSource", "RBDVolumeSource", "ReplicaSet", "ReplicaSetCondition",
    "ReplicaSetSpec", "ReplicaSetStatus", "ResourceClaim", "ResourceFieldSelector", "ResourceHealth",
    "ResourceMetricSource", "ResourceMetricStatus", "ResourceQuota", "ResourceQuotaSpec", "ResourceQuotaStatus",
    "ResourceRequirements", "ResourceStatus", "Role", "RoleBinding", "RoleRef", "RollingUpdateDaemonSet",
    "RollingUpdateDeployment", "RollingUpdateStatefulSetStrategy", "RuleWithOperations", "SELinuxOptions",
    "ScaleIOPersistentVolumeSource", "ScaleIOVolumeSource", "ScopeSelector", "ScopedResourceSelectorRequirement",
    "SeccompProfile", "Secret", "SecretEnvSource", "SecretKeySelector", "SecretProjection", "SecretReference",
    "SecretVolumeSource", "SecurityContext", "Service", "ServiceAccount", "ServiceAccountTokenProjection",
    "ServiceBackendPort", "ServicePort", "ServiceReference", "ServiceSpec", "ServiceStatus",
    "SessionAffinityConfig", "SleepAction", "StatefulSet", "StatefulSetCondition", "StatefulSetOrdinals",
    "StatefulSetPersistentVolumeClaimRetentionPolicy", "StatefulSetSpec", "StatefulSetStatus",
    "StatefulSetUpdateStrategy", "StorageClass", "StorageOSPersistentVolumeSource", "StorageOSVolumeSource",
    "Subject", "SuccessPolicy", "SuccessPolicyRule", "Sysctl", "TCPSocketAction", "Taint", "Toleration",
    "TopologySelectorLabelRequirement", "TopologySelectorTerm", "TopologySpreadConstraint",
    "TypedLocalObjectReference", "TypedObjectReference", "UncountedTerminatedPods", "ValidatingWebhook",
    "ValidatingWebhookConfiguration", "Volume", "VolumeAttachment", "VolumeAttachmentSource",
    "VolumeAttachmentSpec", "VolumeAttachmentStatus", "VolumeDevice", "VolumeError", "VolumeMount",
    "VolumeMountStatus", "VolumeNodeAffinity", "VolumeProjection", "VolumeResourceRequirements", "VolumeStatus",
    "VsphereVirtualDiskVolumeSource", "WebhookClientConfig", "WeightedPodAffinityTerm",
    "WindowsSecurityContextOptions",
]

#: Where each name is defined: those of a module in one text.
HOMES: Final = {
    "clusterrole": "AggregationRule ClusterRole",
    "clusterrolebinding": "ClusterRoleBinding",
    "configmap": "ConfigMap",
    "controllerrevision": "ControllerRevision",
    "cronjob": "CronJob CronJobSpec CronJobStatus JobTemplateSpec",
    "daemonset": "DaemonSet DaemonSetCondition DaemonSetSpec DaemonSetStatus DaemonSetUpdateStrategy RollingUpdateDaemonSet",
    "deployment": "Deployment DeploymentCondition DeploymentSpec DeploymentStatus DeploymentStrategy RollingUpdateDeployment",
    "endpointslice": "Endpoint EndpointConditions EndpointHints EndpointPort EndpointSlice ForNode ForZone",
    "event": "Event EventSeries EventSource",
    "horizontalpodautoscaler": (
        "ContainerResourceMetricSource ContainerResourceMetricStatus CrossVersionObjectReference "
        "ExternalMetricSource ExternalMetricStatus HPAScalingPolicy HPAScalingRules HorizontalPodAutoscaler "
        "HorizontalPodAutoscalerBehavior HorizontalPodAutoscalerCondition HorizontalPodAutoscalerSpec "
        "HorizontalPodAutoscalerStatus MetricIdentifier MetricSpec MetricStatus MetricTarget MetricValueStatus "
        "ObjectMetricSource ObjectMetricStatus PodsMetricSource PodsMetricStatus ResourceMetricSource "
        "ResourceMetricStatus "
    ),
    "ingress": (
        "HTTPIngressPath HTTPIngressRuleValue Ingress IngressBackend IngressLoadBalancerIngress "
        "IngressLoadBalancerStatus IngressPortStatus IngressRule IngressServiceBackend IngressSpec IngressStatus "
        "IngressTLS ServiceBackendPort "
    ),
    "ingressclass": "IngressClass IngressClassParametersReference IngressClassSpec",
    "job": "Job JobCondition JobStatus UncountedTerminatedPods",
    "lease": "Lease LeaseSpec",
    "limitrange": "LimitRange LimitRangeItem LimitRangeSpec",
    "mutatingwebhookconfiguration": "MutatingWebhook MutatingWebhookConfiguration",
    "namespace": "Namespace NamespaceCondition NamespaceSpec NamespaceStatus",
    "networkpolicy": (
        "IPBlock NetworkPolicy NetworkPolicyEgressRule NetworkPolicyIngressRule NetworkPolicyPeer "
        "NetworkPolicyPort NetworkPolicySpec "
    ),
    "node": (
        "AttachedVolume ConfigMapNodeConfigSource ContainerImage DaemonEndpoint Node NodeAddress NodeCondition "
        "NodeConfigSource NodeConfigStatus NodeDaemonEndpoints NodeFeatures NodeRuntimeHandler "
        "NodeRuntimeHandlerFeatures NodeSpec NodeStatus NodeSwapStatus NodeSystemInfo Taint "
    ),
    "persistentvolume": "PersistentVolume PersistentVolumeStatus",
    "pod": (
        "ContainerExtendedResourceRequest ContainerState ContainerStateRunning ContainerStateTerminated "
        "ContainerStateWaiting ContainerStatus ContainerUser HostIP ImageVolumeStatus LinuxContainerUser "
        "NodeAllocatableResourceClaimStatus Pod PodCondition PodExtendedResourceClaimStatus PodIP "
        "PodResourceClaimStatus PodStatus ResourceHealth ResourceStatus VolumeMountStatus VolumeStatus "
    ),
    "poddisruptionbudget": "PodDisruptionBudget PodDisruptionBudgetSpec PodDisruptionBudgetStatus",
    "pods": (
        "Affinity AppArmorProfile AzureFileVolumeSource CSIVolumeSource Capabilities CephFSVolumeSource "
        "CinderVolumeSource ClusterTrustBundleProjection ConfigMapEnvSource ConfigMapKeySelector "
        "ConfigMapProjection ConfigMapVolumeSource Container ContainerPort ContainerResizePolicy "
        "ContainerRestartRule ContainerRestartRuleOnExitCodes DownwardAPIProjection DownwardAPIVolumeFile "
        "DownwardAPIVolumeSource EmptyDirVolumeSource EnvFromSource EnvVar EnvVarSource EphemeralContainer "
        "EphemeralVolumeSource ExecAction FileKeySelector FlexVolumeSource GRPCAction GitRepoVolumeSource "
        "GlusterfsVolumeSource HTTPGetAction HTTPHeader HostAlias ISCSIVolumeSource ImageVolumeSource JobSpec "
        "KeyToPath Lifecycle LifecycleHandler NodeAffinity ObjectFieldSelector PersistentVolumeClaimTemplate "
        "PersistentVolumeClaimVolumeSource PodAffinity PodAffinityTerm PodAntiAffinity PodCertificateProjection "
        "PodDNSConfig PodDNSConfigOption PodFailurePolicy PodFailurePolicyOnExitCodesRequirement "
        "PodFailurePolicyOnPodConditionsPattern PodFailurePolicyRule PodOS PodReadinessGate PodResourceClaim "
        "PodSchedulingGate PodSchedulingGroup PodSecurityContext PodSpec PodTemplateSpec PreferredSchedulingTerm "
        "Probe ProjectedVolumeSource RBDVolumeSource ResourceClaim ResourceFieldSelector ResourceRequirements "
        "SELinuxOptions ScaleIOVolumeSource SeccompProfile SecretEnvSource SecretKeySelector SecretProjection "
        "SecretVolumeSource SecurityContext ServiceAccountTokenProjection SleepAction StorageOSVolumeSource "
        "SuccessPolicy SuccessPolicyRule Sysctl TCPSocketAction Toleration TopologySpreadConstraint Volume "
        "VolumeDevice VolumeMount VolumeProjection WeightedPodAffinityTerm WindowsSecurityContextOptions "
    ),
    "priorityclass": "PriorityClass",
    "replicaset": "ReplicaSet ReplicaSetCondition ReplicaSetSpec ReplicaSetStatus",
    "resourcequota": "ResourceQuota ResourceQuotaSpec ResourceQuotaStatus ScopeSelector ScopedResourceSelectorRequirement",
    "role": "Role",
    "rolebinding": "RoleBinding",
    "secret": "Secret",
    "service": (
        "ClientIPConfig LoadBalancerIngress LoadBalancerStatus PortStatus Service ServicePort ServiceSpec "
        "ServiceStatus SessionAffinityConfig "
    ),
    "serviceaccount": "ServiceAccount",
    "shared": (
        "AWSElasticBlockStoreVolumeSource AzureDiskVolumeSource AzureFilePersistentVolumeSource "
        "CSIPersistentVolumeSource CephFSPersistentVolumeSource CinderPersistentVolumeSource FCVolumeSource "
        "FlexPersistentVolumeSource FlockerVolumeSource GCEPersistentDiskVolumeSource "
        "GlusterfsPersistentVolumeSource HostPathVolumeSource ISCSIPersistentVolumeSource LabelSelector "
        "LabelSelectorRequirement LocalObjectReference LocalVolumeSource MatchCondition ModifyVolumeStatus "
        "NFSVolumeSource NodeSelector NodeSelectorRequirement NodeSelectorTerm ObjectReference "
        "PersistentVolumeClaim PersistentVolumeClaimCondition PersistentVolumeClaimSpec "
        "PersistentVolumeClaimStatus PersistentVolumeSpec PhotonPersistentDiskVolumeSource PolicyRule "
        "PortworxVolumeSource QuobyteVolumeSource RBDPersistentVolumeSource RoleRef RuleWithOperations "
        "ScaleIOPersistentVolumeSource SecretReference ServiceReference StorageOSPersistentVolumeSource Subject "
        "TypedLocalObjectReference TypedObjectReference VolumeNodeAffinity VolumeResourceRequirements "
        "VsphereVirtualDiskVolumeSource WebhookClientConfig "
    ),
    "statefulset": (
        "RollingUpdateStatefulSetStrategy StatefulSet StatefulSetCondition StatefulSetOrdinals "
        "StatefulSetPersistentVolumeClaimRetentionPolicy StatefulSetSpec StatefulSetStatus "
        "StatefulSetUpdateStrategy "
    ),
    "storageclass": "StorageClass TopologySelectorLabelRequirement TopologySelectorTerm",
    "validatingwebhookconfiguration": "ValidatingWebhook ValidatingWebhookConfiguration",
    "volumeattachment": "VolumeAttachment VolumeAttachmentSource VolumeAttachmentSpec VolumeAttachmentStatus VolumeError",
}
