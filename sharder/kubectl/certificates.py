"""Certificates as they are found: who signed them, for which names, until when.

Refuses: to make or renew any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature


@dataclass(frozen=True, slots=True)
class Certificate:
    """One parsed certificate; `names`: DNS names and addresses that it is valid for."""

    subject: str
    begins_at: datetime
    expires_at: datetime
    names: frozenset[str]
    parsed: x509.Certificate = field(repr=False, compare=False)

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
    return tuple(_read(each) for each in x509.load_pem_x509_certificates(pem))


def _read(certificate: x509.Certificate) -> Certificate:
    names: frozenset[str] = frozenset()
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = [str(each) for each in extension.get_values_for_type(x509.IPAddress)]
        names = frozenset([*extension.get_values_for_type(x509.DNSName), *addresses])
    except (x509.ExtensionNotFound, ValueError):
        pass
    return Certificate(
        certificate.subject.rfc4514_string(),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        names,
        certificate,
    )
