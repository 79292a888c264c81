"""Which proxy of the environment a request goes by, as programs in Go read it.

kubectl and controllers in Go take HTTPS_PROXY, HTTP_PROXY and NO_PROXY in this way, so that is what they are
written for where they are set for a whole cluster; Python's own reading knows neither networks nor ports.

Source: golang.org/x/net/http/httpproxy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

#: A name or an address with a port; an address of version 6 is in brackets then.
_WITH_PORT: Final = re.compile(r"(?:\[(?P<bracketed>[^\[\]]*)\]|(?P<plain>[^:\[\]]*)):(?P<port>[^:\[\]]*)")


@dataclass(frozen=True, slots=True)
class Proxy:
    """An address, and the variable that has it."""

    variable: str
    address: str


def proxy_of(environ: Mapping[str, str], scheme: str, host: str, port: int) -> Proxy | None:
    """The proxy for requests to a host, which is in lower case and without brackets; `None`: they go straight.

    >>> proxy_of({"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "10.0.0.0/8,.svc"}, "https", "api.example", 6443)
    Proxy(variable='HTTPS_PROXY', address='http://proxy:3128')
    """
    name, address = _setting(environ, f"{scheme}_proxy")
    if not address or _is_excepted(host, str(port), _setting(environ, "no_proxy")[1]):
        return None
    return Proxy(name, address if "://" in address else f"http://{address}")


def _setting(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """A variable and its value: that in capitals, if it says anything."""
    return next(((each, environ[each]) for each in (name.upper(), name) if environ.get(each)), (name, ""))


def _is_excepted(host: str, port: str, exceptions: str) -> bool:
    ip = _parse_ip(host)
    if host == "localhost" or (ip is not None and ip.is_loopback):
        return True
    return any(_names(entry.strip().lower(), host, ip, port) for entry in exceptions.split(","))


def _names(entry: str, host: str, ip: IPv4Address | IPv6Address | None, port: str) -> bool:
    """Whether an entry of NO_PROXY means a host."""
    if entry == "*":
        return True
    if "/" in entry:
        return ip is not None and _holds(entry, ip)
    parts = _WITH_PORT.fullmatch(entry)
    name = entry if parts is None else parts["bracketed"] or parts["plain"]
    if not name or (parts is not None and parts["port"] not in ("", port)):
        return False
    if ip is not None:
        return _parse_ip(name) == ip
    domain = name.removeprefix("*")
    return host.endswith(domain) if domain.startswith(".") else host == name or host.endswith(f".{name}")


def _parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _holds(network: str, ip: IPv4Address | IPv6Address) -> bool:
    try:
        return network.rpartition("/")[2].isdecimal() and ip in ip_network(network, strict=False)
    except ValueError:
        return False
