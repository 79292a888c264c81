"""The kind Service, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.conditions import Condition
from shardsdk.protocol.objects import Resource


class ClientIPConfig(Model, kw_only=True):
    """ClientIPConfig represents the configurations of Client IP based session affinity."""

    timeout_seconds: int | None = None
    """timeoutSeconds specifies the seconds of ClientIP type session sticky time."""


class LoadBalancerIngress(Model, kw_only=True):
    """LoadBalancerIngress represents the status of a load-balancer ingress point: traffic intended for the service
    should be sent to an ingress point.
    """

    hostname: str | None = None
    """Hostname is set for load-balancer ingress points that are DNS based (typically AWS load-balancers)"""
    ip: str | None = None
    """IP is set for load-balancer ingress points that are IP based (typically GCE or OpenStack load-balancers)"""
    ip_mode: str | None = None
    """IPMode specifies how the load-balancer IP behaves, and may only be specified when the ip field is specified.
    """
    ports: list[PortStatus] | None = None
    """Ports is a list of records of service ports If used, every port defined in the service should have an entry in
    it
    """


class LoadBalancerStatus(Model, kw_only=True):
    """LoadBalancerStatus represents the status of a load-balancer."""

    ingress: list[LoadBalancerIngress] | None = None
    """Ingress is a list containing ingress points for the load-balancer."""


class PortStatus(Model, kw_only=True):
    """PortStatus represents the error condition of a service port"""

    error: str | None = None
    """Error is to record the problem with the service port The format of the error shall comply with the following
    rules: - built-in error values shall be specified in this file and those shall use CamelCase names - cloud
    provider specific error values must have names that comply with the format foo.example.com/CamelCase.
    """
    port: int
    """Port is the port number of the service port of which status is recorded here"""
    protocol: str
    """Protocol is the protocol of the service port of which status is recorded here The supported values are: "TCP",
    "UDP", "SCTP" Possible enum values: - `"SCTP"` is the SCTP protocol. - `"TCP"` is the TCP protocol. - `"UDP"` is
    the UDP protocol.
    """


class Service(Kind, kw_only=True):
    """Service is a named abstraction of software service (for example, mysql) consisting of local port (for example
    3306) that the proxy listens on, and the selector that determines which pods will answer requests sent through
    the proxy.
    """

    resource: ClassVar[Resource] = Resource("", "v1", "services", "Service")

    spec: ServiceSpec = msgspec.field(default_factory=lambda: ServiceSpec())
    """Spec defines the behavior of a service.
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status
    """
    status: ServiceStatus = msgspec.field(default_factory=lambda: ServiceStatus())
    """Most recently observed status of the service."""


class ServicePort(Model, kw_only=True):
    """ServicePort contains information on service's port."""

    app_protocol: str | None = None
    """The application protocol for this port."""
    name: str | None = None
    """The name of this port within the service."""
    node_port: int | None = None
    """The port on each node on which this service is exposed when type is NodePort or LoadBalancer."""
    port: int
    """The port that will be exposed by this service."""
    protocol: str | None = None
    """The IP protocol for this port."""
    target_port: int | str | None = None
    """Number or name of the port to access on the pods targeted by the service."""


class ServiceSpec(Model, kw_only=True):
    """ServiceSpec describes the attributes that a user creates on a service."""

    allocate_load_balancer_node_ports: bool | None = None
    """allocateLoadBalancerNodePorts defines if NodePorts will be automatically allocated for services with type
    LoadBalancer.
    """
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    """clusterIP is the IP address of the service and is usually assigned randomly."""
    cluster_ips: list[str] | None = msgspec.field(default=None, name="clusterIPs")
    """ClusterIPs is a list of IP addresses assigned to this service, and are usually assigned randomly."""
    external_ips: list[str] | None = msgspec.field(default=None, name="externalIPs")
    """externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this service.
    """
    external_name: str | None = None
    """externalName is the external reference that discovery mechanisms will return as an alias for this service (e.g.
    a DNS CNAME record).
    """
    external_traffic_policy: str | None = None
    """externalTrafficPolicy describes how nodes distribute service traffic they receive on one of the Service's
    "externally-facing" addresses (NodePorts, ExternalIPs, and LoadBalancer IPs).
    """
    health_check_node_port: int | None = None
    """healthCheckNodePort specifies the healthcheck nodePort for the service."""
    internal_traffic_policy: str | None = None
    """InternalTrafficPolicy describes how nodes distribute service traffic they receive on the ClusterIP."""
    ip_families: list[str] | None = None
    """IPFamilies is a list of IP families (e.g."""
    ip_family_policy: str | None = None
    """IPFamilyPolicy represents the dual-stack-ness requested or required by this Service."""
    load_balancer_class: str | None = None
    """loadBalancerClass is the class of the load balancer implementation this Service belongs to."""
    load_balancer_ip: str | None = msgspec.field(default=None, name="loadBalancerIP")
    """Only applies to Service Type: LoadBalancer."""
    load_balancer_source_ranges: list[str] | None = None
    """If specified and supported by the platform, this will restrict traffic through the cloud-provider load-balancer
    will be restricted to the specified client IPs.
    """
    ports: list[ServicePort] | None = None
    """The list of ports that are exposed by this service."""
    publish_not_ready_addresses: bool | None = None
    """publishNotReadyAddresses indicates that any agent which deals with endpoints for this Service should disregard
    any indications of ready/not-ready.
    """
    selector: dict[str, str] | None = None
    """Route service traffic to pods with label keys and values matching this selector."""
    session_affinity: str | None = None
    """Supports "ClientIP" and "None"."""
    session_affinity_config: SessionAffinityConfig | None = None
    """sessionAffinityConfig contains the configurations of session affinity."""
    traffic_distribution: str | None = None
    """TrafficDistribution offers a way to express preferences for how traffic is distributed to Service endpoints.
    """
    type: str | None = None
    """type determines how the Service is exposed."""


class ServiceStatus(Model, kw_only=True):
    """ServiceStatus represents the current status of a service."""

    conditions: list[Condition] | None = None
    """Current service state"""
    load_balancer: LoadBalancerStatus | None = None
    """LoadBalancer contains the current status of the load-balancer, if one is present."""


class SessionAffinityConfig(Model, kw_only=True):
    """SessionAffinityConfig represents the configurations of session affinity."""

    client_ip: ClientIPConfig | None = msgspec.field(default=None, name="clientIP")
    """clientIP contains the configurations of Client IP based session affinity."""
