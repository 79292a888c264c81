"""Certificates as they are found: who signed them, for which names, until when."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding


@dataclass(frozen=True, slots=True)
class Certificate:
    """One parsed certificate; `dns_names` and `addresses`: what it is valid for."""

    begins_at: datetime
    expires_at: datetime
    dns_names: frozenset[str]
    addresses: frozenset[str]
    parsed: x509.Certificate = field(repr=False)

    @property
    def pem(self) -> bytes:
        """The certificate as PEM."""
        return self.parsed.public_bytes(Encoding.PEM)

    def valid_at(self, moment: datetime) -> bool:
        """Whether `moment` is within its validity."""
        return self.begins_at <= moment < self.expires_at

    def signed_by(self, authority: Certificate) -> bool:
        """Whether `authority` signed it."""
        try:
            self.parsed.verify_directly_issued_by(authority.parsed)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


def parse_bundle(pem: bytes) -> tuple[Certificate, ...]:
    """Every certificate of a PEM bundle.  Raises: ValueError when there is none, or one cannot be read."""
    return tuple(wrap(each) for each in x509.load_pem_x509_certificates(pem))


def wrap(certificate: x509.Certificate) -> Certificate:
    """What is asked of `certificate`.  Raises: ValueError when its names cannot be read."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        dns_names = extension.get_values_for_type(x509.DNSName)
        addresses = [str(each) for each in extension.get_values_for_type(x509.IPAddress)]
    except x509.ExtensionNotFound:
        dns_names, addresses = [], []
    return Certificate(
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        frozenset(dns_names),
        frozenset(addresses),
        certificate,
    )
