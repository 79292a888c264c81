"""What NetworkPolicies admit, by the rules of their API: an oracle for those of the charts.

It reads objects as the API server returns them, defaults filled in. A field that it does not know is an error.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sharder.core.selectors import parse_selector

Direction = Literal["Ingress", "Egress"]
_PEERS = {"Ingress": "from", "Egress": "to"}


@dataclass(frozen=True, slots=True)
class End:
    """The other end of a connection: a pod, or an address outside the cluster (labels None)."""

    address: str
    namespace: Mapping[str, str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that policies are about: its namespace's name, its labels, its ports by name."""

    namespace: str
    labels: Mapping[str, str]
    ports: Mapping[str, int]


def pod_of(workload: Mapping[str, Any]) -> Pod:
    """The pods of a Deployment or Job."""
    template = workload["spec"]["template"]
    ports = [port for container in template["spec"]["containers"] for port in container.get("ports") or ()]
    return Pod(
        workload["metadata"]["namespace"],
        template["metadata"]["labels"],
        {port["name"]: port["containerPort"] for port in ports},
    )


def admitted(
    policies: Iterable[Mapping[str, Any]],
    pod: Pod,
    direction: Direction,
    other: End,
    port: int,
    protocol: str = "TCP",
) -> bool:
    """Whether `pod` may be reached from `other` at its `port` (Ingress), or may reach it at `other`'s (Egress)."""
    applying = [each for each in policies if direction in each["spec"]["policyTypes"] and _selects(each, pod)]
    if not applying:
        return True
    rules = [rule for each in applying for rule in each["spec"].get(direction.lower()) or ()]
    return any(
        _is_port(rule, pod, port, protocol) and _is_peer(rule.get(_PEERS[direction]), pod, other) for rule in rules
    )


def _selects(policy: Mapping[str, Any], pod: Pod) -> bool:
    return policy["metadata"]["namespace"] == pod.namespace and _matches(policy["spec"]["podSelector"], pod.labels)


def _matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    parsed, problems = parse_selector(selector, "selector")
    if problems:
        raise ValueError("; ".join(map(str, problems)))
    return parsed.matches(labels)


def _is_port(rule: Mapping[str, Any], pod: Pod, port: int, protocol: str) -> bool:
    wanted = rule.get("ports") or ()
    return not wanted or any(protocol == proto and port == number for proto, number in _ports(wanted, pod))


def _ports(wanted: Iterable[Mapping[str, Any]], pod: Pod) -> Iterator[tuple[str, int]]:
    for each in wanted:
        _only(each, "protocol", "port")
        number = each["port"]
        yield each["protocol"], pod.ports.get(number, -1) if isinstance(number, str) else number


def _is_peer(peers: Iterable[Mapping[str, Any]] | None, pod: Pod, other: End) -> bool:
    return not peers or any(_is(peer, pod, other) for peer in peers)


def _is(peer: Mapping[str, Any], pod: Pod, other: End) -> bool:
    if block := peer.get("ipBlock"):
        _only(block, "cidr", "except")
        address = ipaddress.ip_address(other.address)
        outside = [ipaddress.ip_network(each) for each in block.get("except") or ()]
        return address in ipaddress.ip_network(block["cidr"]) and not any(address in each for each in outside)
    _only(peer, "namespaceSelector", "podSelector")
    if other.namespace is None:
        return False
    spaces = peer.get("namespaceSelector")
    own = other.namespace.get("kubernetes.io/metadata.name") == pod.namespace
    return (own if spaces is None else _matches(spaces, other.namespace)) and _matches(
        peer.get("podSelector") or {}, other.labels
    )


def _only(thing: Mapping[str, Any], *known: str) -> None:
    if unknown := set(thing) - set(known):
        raise ValueError(f"this oracle does not know {sorted(unknown)} of {thing}")
