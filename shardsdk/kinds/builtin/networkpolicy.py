"""The kind NetworkPolicy, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.shared import LabelSelector
from shardsdk.protocol.objects import Resource


class IPBlock(Model, kw_only=True):
    """IPBlock describes a particular CIDR (Ex."""

    cidr: str
    """cidr is a string representing the IPBlock Valid examples are "192.168.1.0/24" or "2001:db8::/64" """
    except_: list[str] | None = None
    """except is a slice of CIDRs that should not be included within an IPBlock Valid examples are "192.168.1.0/24" or
    "2001:db8::/64" Except values will be rejected if they are outside the cidr range
    """


class NetworkPolicy(Kind, kw_only=True):
    """NetworkPolicy describes what network traffic is allowed for a set of Pods"""

    resource: ClassVar[Resource] = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")

    spec: NetworkPolicySpec = msgspec.field(default_factory=lambda: NetworkPolicySpec())
    """spec represents the specification of the desired behavior for this NetworkPolicy."""


class NetworkPolicyEgressRule(Model, kw_only=True):
    """NetworkPolicyEgressRule describes a particular set of traffic that is allowed out of pods matched by a
    NetworkPolicySpec's podSelector.
    """

    ports: list[NetworkPolicyPort] | None = None
    """ports is a list of destination ports for outgoing traffic."""
    to: list[NetworkPolicyPeer] | None = None
    """to is a list of destinations for outgoing traffic of pods selected for this rule."""


class NetworkPolicyIngressRule(Model, kw_only=True):
    """NetworkPolicyIngressRule describes a particular set of traffic that is allowed to the pods matched by a
    NetworkPolicySpec's podSelector.
    """

    from_: list[NetworkPolicyPeer] | None = None
    """from is a list of sources which should be able to access the pods selected for this rule."""
    ports: list[NetworkPolicyPort] | None = None
    """ports is a list of ports which should be made accessible on the pods selected for this rule."""


class NetworkPolicyPeer(Model, kw_only=True):
    """NetworkPolicyPeer describes a peer to allow traffic to/from."""

    ip_block: IPBlock | None = None
    """ipBlock defines policy on a particular IPBlock."""
    namespace_selector: LabelSelector | None = None
    """namespaceSelector selects namespaces using cluster-scoped labels."""
    pod_selector: LabelSelector | None = None
    """podSelector is a label selector which selects pods."""


class NetworkPolicyPort(Model, kw_only=True):
    """NetworkPolicyPort describes a port to allow traffic on"""

    end_port: int | None = None
    """endPort indicates that the range of ports from port to endPort if set, inclusive, should be allowed by the
    policy.
    """
    port: int | str | None = None
    """port represents the port on the given protocol."""
    protocol: str | None = None
    """protocol represents the protocol (TCP, UDP, or SCTP) which traffic must match."""


class NetworkPolicySpec(Model, kw_only=True):
    """NetworkPolicySpec provides the specification of a NetworkPolicy"""

    egress: list[NetworkPolicyEgressRule] | None = None
    """egress is a list of egress rules to be applied to the selected pods."""
    ingress: list[NetworkPolicyIngressRule] | None = None
    """ingress is a list of ingress rules to be applied to the selected pods."""
    pod_selector: LabelSelector | None = None
    """podSelector selects the pods to which this NetworkPolicy object applies."""
    policy_types: list[str] | None = None
    """policyTypes is a list of rule types that the NetworkPolicy relates to."""
