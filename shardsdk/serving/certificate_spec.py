"""What serving certificates shall be: for which names, whose, and how long they live."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from shardsdk.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ServingNames:
    """Under which names the API server calls: DNS names and IP addresses, each sorted.

    `subject` is the certificate's common name, which people see and nobody compares; its authority's is that and "CA".
    """

    dns: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    subject: str = "webhook"

    @classmethod
    def of(cls, hosts: Iterable[str], subject: str = "webhook") -> Self:
        """Sort `hosts` into names and addresses ("::1" and "[::1]" are the same address).

        Raises: ConfigurationError for a name that a certificate cannot carry.
        """
        dns, addresses = set(), set()
        for host in hosts:
            try:
                addresses.add(str(ipaddress.ip_address(host.strip("[]"))))
            except ValueError:
                if not host or not host.isascii():
                    raise ConfigurationError(
                        f"{host!r} cannot be a name in a certificate; write it in ASCII (punycode)"
                    ) from None
                dns.add(host.lower())
        return cls(frozenset(dns), frozenset(addresses), subject)

    @classmethod
    def of_service(cls, name: str, namespace: str, subject: str = "webhook") -> Self:
        """Those of a Service, from the shortest to the one with the cluster's usual domain."""
        suffixes = ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")
        return cls.of([name + suffix for suffix in suffixes], subject)

    def covers(self, wanted: ServingNames) -> bool:
        """Whether every wanted name is among these."""
        return self.dns >= wanted.dns and self.addresses >= wanted.addresses

    def __or__(self, other: ServingNames) -> ServingNames:
        return ServingNames(self.dns | other.dns, self.addresses | other.addresses, self.subject)

    def __len__(self) -> int:
        return len(self.dns) + len(self.addresses)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long certificates live and when their successors are made.

    A year for the authority, so that its renewal is everyday business and not
    something that first happens when nobody remembers it.  Both are renewed
    when `renew_at` of their life is over: two thirds, as cert-manager does.
    A day for `bundle_spread` covers a leader that was away for a while.
    """

    authority: timedelta = timedelta(days=365)
    serving: timedelta = timedelta(days=90)
    renew_at: float = 2 / 3
    bundle_spread: timedelta = timedelta(days=1)
