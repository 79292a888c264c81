"""What people say of how an operator's webhooks are served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from shardsdk.admission.configuration import PORT
from shardsdk.errors import ConfigurationError
from shardsdk.kube.access import in_pod
from shardsdk.serving.certificate_spec import Lifetimes

if TYPE_CHECKING:
    from shardsdk.admission.webhook import Webhook

#: What a replica that is to end may take to take its configurations away, or to tell callers to go, before it answers
#: what has begun then; and a little.
LEAVE_SECONDS: Final = 10
_REMEDY: Final = "write host or host:port, an IPv6 address in brackets, as in [::1]:9443"


@dataclass(frozen=True, slots=True)
class Serving:
    """How webhooks are served, and called.

    They listen on `port` of `host` (empty: of all addresses).  `address` is for a process outside of a pod: the host,
    or host:port, by which API servers reach it; then it makes the webhook configurations itself and takes them away
    at its end, unless `installs` is False; one such process is to be behind an address.  `cert_dir` has `tls.crt` and
    `tls.key` of somebody else's making, as cert-manager's; without it they come from where controller-runtime looks by
    default, if they are there, else from a Secret that the replicas share.  `lifetimes` are of certificates of our own.
    """

    host: str = ""
    port: int = PORT
    address: str = ""
    installs: bool | None = None
    cert_dir: str = ""
    lifetimes: Lifetimes | None = None

    @classmethod
    def reached_at(cls, address: str) -> Serving:
        """For a process outside of a pod: it listens where it is called, on a free port unless one is given.

        Raises: ConfigurationError when it is no host or host:port.
        """
        return cls(port=split_address(address)[1] or 0, address=address)

    @property
    def served(self) -> bool:
        """Whether this process serves them: it is in a pod, or has an address."""
        return in_pod() or bool(self.address)

    def certificates(self) -> str:
        """The directory with somebody else's certificate, on this machine; empty: it has none."""
        from shardsdk.serving.certificate_watcher import find_default_directory  # which few ask for

        return self.cert_dir or str(find_default_directory() or "")

    def here(self) -> Serving | None:
        """The same with what this process finds on its machine; `None`: it does not serve webhooks."""
        return replace(self, cert_dir=self.certificates()) if self.served else None

    @property
    def install(self) -> bool:
        """Whether the configurations are made by the process that is called."""
        return bool(self.address) if self.installs is None else self.installs


def answer_seconds(webhooks: Iterable[Webhook]) -> int:
    """How long somebody may still wait for the answer of one of `webhooks`, once they take no more requests."""
    return max((each.timeout_seconds for each in webhooks), default=0)


def stop_seconds(webhooks: Iterable[Webhook]) -> int:
    """What a replica that serves `webhooks` may take to end in order."""
    return LEAVE_SECONDS + answer_seconds(webhooks)


def split_address(address: str) -> tuple[str, int | None]:
    """Host and port (`None`: not given).  Raises: ConfigurationError."""
    try:
        found = urlsplit(f"//{address}")
        host, port = found.hostname, found.port
    except ValueError as error:
        raise ConfigurationError(f"{address!r} is no address: {error}; {_REMEDY}") from error
    if not host or found.path or found.username:
        raise ConfigurationError(f"{address!r} is no address; {_REMEDY}")
    return host, port
