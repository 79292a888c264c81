"""The kind EndpointSlice, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.shared import ObjectReference
from shardsdk.protocol.objects import Resource


class Endpoint(Model, kw_only=True):
    """Endpoint represents a single logical "backend" implementing a service."""

    addresses: list[str]
    """addresses of this endpoint."""
    conditions: EndpointConditions | None = None
    """conditions contains information about the current status of the endpoint."""
    deprecated_topology: dict[str, str] | None = None
    """deprecatedTopology contains topology information part of the v1beta1 API."""
    hints: EndpointHints | None = None
    """hints contains information associated with how an endpoint should be consumed."""
    hostname: str | None = None
    """hostname of this endpoint."""
    node_name: str | None = None
    """nodeName represents the name of the Node hosting this endpoint."""
    target_ref: ObjectReference | None = None
    """targetRef is a reference to a Kubernetes object that represents this endpoint."""
    zone: str | None = None
    """zone is the name of the Zone this endpoint exists in."""


class EndpointConditions(Model, kw_only=True):
    """EndpointConditions represents the current condition of an endpoint."""

    ready: bool | None = None
    """ready indicates that this endpoint is ready to receive traffic, according to whatever system is managing the
    endpoint.
    """
    serving: bool | None = None
    """serving indicates that this endpoint is able to receive traffic, according to whatever system is managing the
    endpoint.
    """
    terminating: bool | None = None
    """terminating indicates that this endpoint is terminating."""


class EndpointHints(Model, kw_only=True):
    """EndpointHints provides hints describing how an endpoint should be consumed."""

    for_nodes: list[ForNode] | None = None
    """forNodes indicates the node(s) this endpoint should be consumed by when using topology aware routing."""
    for_zones: list[ForZone] | None = None
    """forZones indicates the zone(s) this endpoint should be consumed by when using topology aware routing."""


class EndpointPort(Model, kw_only=True):
    """EndpointPort represents a Port used by an EndpointSlice"""

    app_protocol: str | None = None
    """The application protocol for this port."""
    name: str | None = None
    """name represents the name of this port."""
    port: int | None = None
    """port represents the port number of the endpoint."""
    protocol: str | None = None
    """protocol represents the IP protocol for this port."""


class EndpointSlice(Kind, kw_only=True):
    """EndpointSlice represents a set of service endpoints."""

    resource: ClassVar[Resource] = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")

    address_type: str
    """addressType specifies the type of address carried by this EndpointSlice."""
    endpoints: list[Endpoint] = []
    """endpoints is a list of unique endpoints in this slice."""
    ports: list[EndpointPort] = []
    """ports specifies the list of network ports exposed by each endpoint in this slice."""


class ForNode(Model, kw_only=True):
    """ForNode provides information about which nodes should consume this endpoint."""

    name: str
    """name represents the name of the node."""


class ForZone(Model, kw_only=True):
    """ForZone provides information about which zones should consume this endpoint."""

    name: str
    """name represents the name of the zone."""
