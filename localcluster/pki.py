"""Keys and certificates of one control plane: a CA, a serving certificate, client certificates.

Elliptic curves, because making an RSA key takes longer than booting etcd.
Refuses: to be secure for long; everything is thrown away with the control plane.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: The second is what programs in pods may call it.
_SERVER_NAMES = ("localhost", "kubernetes.default.svc")
_VALID = datetime.timedelta(days=30)
#: A cluster's certificates are older than most clocks are wrong.
_BACKDATE = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A CA of its own, whose files lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("localcluster")
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.bundle = self._certificate.public_bytes(serialization.Encoding.PEM)
        self.bundle_path = folder / "ca.crt"
        self.bundle_path.write_bytes(self.bundle)

    def client_context(self) -> ssl.SSLContext:
        """A TLS context that trusts this CA only."""
        return ssl.create_default_context(cadata=self.bundle.decode())

    def write_key(self, name: str) -> Path:
        """Write a fresh private key (the one that signs ServiceAccount tokens)."""
        path = self.folder / name
        path.write_bytes(_pem(ec.generate_private_key(ec.SECP256R1())))
        return path

    def write_serving_pair(self, addresses: Sequence[str] = ()) -> tuple[Path, Path]:
        """Write certificate and key for servers on the loopback interface, and at further IP addresses."""
        alternatives = x509.SubjectAlternativeName(
            [
                *(x509.DNSName(name) for name in _SERVER_NAMES),
                *(x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", *addresses)),
            ]
        )
        return self._write("server", self._issue(_name("localhost"), ExtendedKeyUsageOID.SERVER_AUTH, alternatives))

    def write_client_pair(self, name: str, user: str, groups: Sequence[str]) -> tuple[Path, Path]:
        """Write `name`.crt and `name`.key of a client certificate."""
        return self._write(name, self.client_pair(user, groups))

    def _write(self, name: str, pair: Pair) -> tuple[Path, Path]:
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        return certificate, key

    def client_pair(self, user: str, groups: Sequence[str], valid: datetime.timedelta = _VALID) -> Pair:
        """A client certificate that the API server takes for `user` in `groups`, for so long."""
        return self._issue(_name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, None, valid)

    def _issue(
        self,
        name: x509.Name,
        purpose: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
        valid: datetime.timedelta = _VALID,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(name, self._name, key.public_key(), valid)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(authority_key, critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, valid: datetime.timedelta = _VALID
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _name(common: str, organizations: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
