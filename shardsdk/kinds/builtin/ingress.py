"""The kind Ingress, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.shared import TypedLocalObjectReference
from shardsdk.protocol.objects import Resource


class HTTPIngressPath(Model, kw_only=True):
    """HTTPIngressPath associates a path with a backend."""

    backend: IngressBackend
    """backend defines the referenced service endpoint to which the traffic will be forwarded to."""
    path: str | None = None
    """path is matched against the path of an incoming request."""
    path_type: str
    """pathType determines the interpretation of the path matching."""


class HTTPIngressRuleValue(Model, kw_only=True):
    """HTTPIngressRuleValue is a list of http selectors pointing to backends."""

    paths: list[HTTPIngressPath]
    """paths is a collection of paths that map requests to backends."""


class Ingress(Kind, kw_only=True):
    """Ingress is a collection of rules that allow inbound connections to reach the endpoints defined by a backend.
    """

    resource: ClassVar[Resource] = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")

    spec: IngressSpec = msgspec.field(default_factory=lambda: IngressSpec())
    """spec is the desired state of the Ingress."""
    status: IngressStatus = msgspec.field(default_factory=lambda: IngressStatus())
    """status is the current state of the Ingress."""


class IngressBackend(Model, kw_only=True):
    """IngressBackend describes all endpoints for a given service and port."""

    resource: TypedLocalObjectReference | None = None
    """resource is an ObjectRef to another Kubernetes resource in the namespace of the Ingress object."""
    service: IngressServiceBackend | None = None
    """service references a service as a backend."""


class IngressLoadBalancerIngress(Model, kw_only=True):
    """IngressLoadBalancerIngress represents the status of a load-balancer ingress point."""

    hostname: str | None = None
    """hostname is set for load-balancer ingress points that are DNS based."""
    ip: str | None = None
    """ip is set for load-balancer ingress points that are IP based."""
    ports: list[IngressPortStatus] | None = None
    """ports provides information about the ports exposed by this LoadBalancer."""


class IngressLoadBalancerStatus(Model, kw_only=True):
    """IngressLoadBalancerStatus represents the status of a load-balancer."""

    ingress: list[IngressLoadBalancerIngress] | None = None
    """ingress is a list containing ingress points for the load-balancer."""


class IngressPortStatus(Model, kw_only=True):
    """IngressPortStatus represents the error condition of a service port"""

    error: str | None = None
    """error is to record the problem with the service port The format of the error shall comply with the following
    rules: - built-in error values shall be specified in this file and those shall use CamelCase names - cloud
    provider specific error values must have names that comply with the format foo.example.com/CamelCase.
    """
    port: int
    """port is the port number of the ingress port."""
    protocol: str
    """protocol is the protocol of the ingress port."""


class IngressRule(Model, kw_only=True):
    """IngressRule represents the rules mapping the paths under a specified host to the related backend services."""

    host: str | None = None
    """host is the fully qualified domain name of a network host, as defined by RFC 3986."""
    http: HTTPIngressRuleValue | None = None


class IngressServiceBackend(Model, kw_only=True):
    """IngressServiceBackend references a Kubernetes Service as a Backend."""

    name: str
    """name is the referenced service."""
    port: ServiceBackendPort | None = None
    """port of the referenced service."""


class IngressSpec(Model, kw_only=True):
    """IngressSpec describes the Ingress the user wishes to exist."""

    default_backend: IngressBackend | None = None
    """defaultBackend is the backend that should handle requests that don't match any rule."""
    ingress_class_name: str | None = None
    """ingressClassName is the name of an IngressClass cluster resource."""
    rules: list[IngressRule] | None = None
    """rules is a list of host rules used to configure the Ingress."""
    tls: list[IngressTLS] | None = None
    """tls represents the TLS configuration."""


class IngressStatus(Model, kw_only=True):
    """IngressStatus describe the current state of the Ingress."""

    load_balancer: IngressLoadBalancerStatus | None = None
    """loadBalancer contains the current status of the load-balancer."""


class IngressTLS(Model, kw_only=True):
    """IngressTLS describes the transport layer security associated with an ingress."""

    hosts: list[str] | None = None
    """hosts is a list of hosts included in the TLS certificate."""
    secret_name: str | None = None
    """secretName is the name of the secret used to terminate TLS traffic on port 443."""


class ServiceBackendPort(Model, kw_only=True):
    """ServiceBackendPort is the service port being referenced."""

    name: str | None = None
    """name is the name of the port on the Service."""
    number: int | None = None
    """number is the numerical port number (e.g. 80) on the Service."""
