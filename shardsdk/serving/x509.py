"""Makes certificates: an authority of our own, and what it signs.  When one is due is renewal.py's."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shardsdk.errors import ConfigurationError
from shardsdk.serving.certificate_spec import ServingNames
from shardsdk.serving.x509_certificate import Certificate, parse_bundle, wrap

#: Certificates begin this much before they are made, so that an API server
#: whose clock is behind ours accepts them at once.
BACKDATE: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its private key (PEM)."""

    certificate: Certificate
    key: bytes = field(repr=False)


def make_authority(now: datetime, lifetime: timedelta, subject: str = "webhook") -> Issued:
    """A new certificate authority (ECDSA P-256) for `subject` that signs serving certificates only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{subject} CA")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, name, key.public_key(), now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Issued(wrap(certificate), _key_pem(key))


def issue(authority: Issued, names: ServingNames, now: datetime, lifetime: timedelta) -> Issued:
    """A serving certificate for `names`, signed by `authority` and ending no later than it."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = parse_key(authority.key)
    issuer = authority.certificate.parsed
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in sorted(names.dns)]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(names.addresses)]
    expires_at = min(now + lifetime, authority.certificate.expires_at)
    certificate = (
        _builder(_name(names.subject), issuer.subject, key.public_key(), now, expires_at)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(_identifier_of(issuer, signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return Issued(wrap(certificate), _key_pem(key))


def parse_certificates(pem: bytes) -> tuple[Certificate, ...]:
    """Read every certificate of a bundle.

    Raises: ConfigurationError when there is none or one cannot be read.
    """
    try:
        return parse_bundle(pem)
    except ValueError as error:
        raise ConfigurationError(f"not a PEM certificate: {error}") from error


def parse_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Read a private key that this module made.

    Raises: ConfigurationError when it is anything else.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"not a PEM private key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigurationError(f"the private key is {type(key).__name__}, not an elliptic curve key")
    return key


def fits(certificate: Certificate, key: ec.EllipticCurvePrivateKey) -> bool:
    """Whether `key` is the private half of the certificate's key."""
    return certificate.parsed.public_key() == key.public_key()


def may_sign(certificate: Certificate) -> bool:
    """Whether those who trust the certificate trust what its key signed."""
    extensions = certificate.parsed.extensions
    try:
        if not extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
    except x509.ExtensionNotFound:
        return False
    try:
        return extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        return True  # for any use


def _identifier_of(issuer: x509.Certificate, key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    """By which what `issuer` signs names its `key`."""
    try:
        own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:  # somebody's own authority may do without
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, expires_at: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(expires_at)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
