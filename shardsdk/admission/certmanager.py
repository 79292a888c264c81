"""Certificates of an operator's webhooks by cert-manager: what asks for them, and where they are mounted.

cert-manager writes the pair into a Secret, and its CA injector the authority into
the webhook configurations.  Both change at once when a certificate is signed by
another authority, but pods see a new Secret up to a minute later; a webhook that
fails closed refuses all requests meanwhile.  So the authority that is made here
keeps its key for good: whatever it signed is good by its renewed certificate, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from shardsdk.admission.configuration import Manifest, labels_of, service_name
from shardsdk.errors import ConfigurationError
from shardsdk.protocol.names import is_dns_subdomain

#: Names, in an annotation of a webhook configuration, the Certificate (namespace/name) whose authority is injected.
INJECT: Final = "cert-manager.io/inject-ca-from"
GROUP: Final = "cert-manager.io"
ISSUER: Final = "Issuer"
_API_VERSION: Final = f"{GROUP}/v1"
#: As with certificates of our own (`Lifetimes`): renewed when two thirds are over.
DURATION: Final = "2160h"
RENEW_BEFORE: Final = "720h"
#: Ten years; what it signs is renewed all the time.
AUTHORITY_DURATION: Final = "87600h"
_COMMON_NAME_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class Issuer:
    """Who signs, as a Certificate's `issuerRef` has it."""

    name: str
    kind: str = ISSUER
    group: str = GROUP

    @classmethod
    def parse(cls, text: str) -> Issuer:
        """From NAME, KIND/NAME or KIND.GROUP/NAME.  Raises: ConfigurationError."""
        written, slash, name = text.rpartition("/")
        kind, _, group = written.partition(".")
        if not is_dns_subdomain(name) or (slash and not kind.isalnum()) or (group and not is_dns_subdomain(group)):
            raise ConfigurationError(
                f"{text!r} names no issuer; write NAME (of an Issuer), or KIND/NAME as in ClusterIssuer/company, or"
                " KIND.GROUP/NAME of another project's"
            )
        return cls(name, kind or ISSUER, group or GROUP)

    @classmethod
    def of_its_own(cls, operator: str) -> Issuer:
        """The one that `render_authority` makes."""
        return cls(f"{operator}-webhook-authority")

    def reference(self) -> dict[str, str]:
        """The `issuerRef`."""
        return {"group": self.group, "kind": self.kind, "name": self.name}


def mounted_secret_name(operator: str) -> str:
    """The Secret that cert-manager writes.  Not that in which replicas share certificates of their own making."""
    return f"{operator}-webhook-tls"


def inject_annotations(operator: str, namespace: str) -> dict[str, str]:
    """Of the webhook configurations, by which they get the authority."""
    return {INJECT: f"{namespace}/{service_name(operator)}"}


def render_certificate(operator: str, namespace: str, issuer_ref: Any) -> Manifest:
    """The Certificate for the names of the operator's Service."""
    name = service_name(operator)
    suffixes = (f".{namespace}.svc", f".{namespace}.svc.cluster.local", f".{namespace}", "")
    spec = {
        "secretName": mounted_secret_name(operator),
        "duration": DURATION,
        "renewBefore": RENEW_BEFORE,
        "dnsNames": [name + each for each in suffixes],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "usages": ["digital signature", "server auth"],
        "issuerRef": issuer_ref,
    }
    return _manifest("Certificate", operator, name, namespace, spec)


def render_authority(operator: str, namespace: str) -> list[Manifest]:
    """An authority for this operator alone, and the Issuer that signs by it."""
    issuer = Issuer.of_its_own(operator)
    first = f"{operator}-webhook-selfsigned"
    authority = {
        "isCA": True,
        "commonName": f"{operator} webhooks CA"[:_COMMON_NAME_CHARACTERS],
        "secretName": issuer.name,
        "duration": AUTHORITY_DURATION,
        # Never: see the head of this file.
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Never"},
        "issuerRef": Issuer(first).reference(),
    }
    return [
        _manifest(ISSUER, operator, first, namespace, {"selfSigned": {}}),
        _manifest("Certificate", operator, issuer.name, namespace, authority),
        _manifest(ISSUER, operator, issuer.name, namespace, {"ca": {"secretName": issuer.name}}),
    ]


def _manifest(kind: str, operator: str, name: str, namespace: str, spec: Manifest) -> Manifest:
    metadata = {"name": name, "namespace": namespace, "labels": labels_of(operator)}
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
