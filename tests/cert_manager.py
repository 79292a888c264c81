"""cert-manager's resource types, with the fields of v1 that are written here and no others, and what it does of them.

`CertManager` signs and injects as its controllers do, but only when it is told to, so that a test says what is renewed.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localcluster import AdminClient

TEXT: Final[dict[str, Any]] = {"type": "string"}
TEXTS: Final[dict[str, Any]] = {"type": "array", "items": TEXT}
#: Source: cert-manager, deploy/crds/cert-manager.io_certificates.yaml.
CERTIFICATE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["issuerRef", "secretName"],
    "properties": {
        "commonName": {**TEXT, "maxLength": 64},
        "dnsNames": TEXTS,
        "duration": TEXT,
        "isCA": {"type": "boolean"},
        "issuerRef": {
            "type": "object",
            "required": ["name"],
            "properties": {"group": TEXT, "kind": TEXT, "name": TEXT},
        },
        "privateKey": {
            "type": "object",
            "properties": {
                "algorithm": {**TEXT, "enum": ["RSA", "ECDSA", "Ed25519"]},
                "rotationPolicy": {**TEXT, "enum": ["Never", "Always"]},
                "size": {"type": "integer"},
            },
        },
        "renewBefore": TEXT,
        "secretName": TEXT,
        "usages": {
            "type": "array",
            "items": {
                **TEXT,
                "enum": ["signing", "digital signature", "key encipherment", "cert sign", "server auth", "client auth"],
            },
        },
    },
}
#: Source: cert-manager, deploy/crds/cert-manager.io_issuers.yaml.
ISSUER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "ca": {"type": "object", "required": ["secretName"], "properties": {"secretName": TEXT}},
        "selfSigned": {"type": "object", "properties": {"crlDistributionPoints": TEXTS}},
    },
}


def cert_manager_types() -> list[dict[str, Any]]:
    """CustomResourceDefinitions of Certificate and Issuer."""
    return [_definition("Certificate", CERTIFICATE), _definition("Issuer", ISSUER)]


def _definition(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


CERTIFICATES: Final = "cert-manager.io/v1/certificates"
ISSUERS: Final = "cert-manager.io/v1/issuers"
SECRETS: Final = "v1/secrets"
CONFIGURATIONS: Final = tuple(
    f"admissionregistration.k8s.io/v1/{kind}webhookconfigurations" for kind in ("validating", "mutating")
)
INJECT: Final = "cert-manager.io/inject-ca-from"
#: A Secret's keys; the last is who signed.
CERTIFICATE_PEM, KEY_PEM, CA_PEM = "tls.crt", "tls.key", "ca.crt"


@dataclass(frozen=True, slots=True)
class CertManager:
    """Its controllers for one namespace, a step at a time."""

    admin: AdminClient
    namespace: str

    async def issue(self, name: str) -> x509.Certificate:
        """Sign what the Certificate `name` asks for, into its Secret; there already, it is renewed.

        With the rotation policy "Never" the key stays as long as its Secret does.  Signed is by what the issuer's
        Secret holds now.  Source: cert-manager's documentation of Certificate, privateKey and "Issuance behaviour".
        """
        spec = (await self.admin.get(CERTIFICATES, name, self.namespace))["spec"]
        issuer = (await self.admin.get(ISSUERS, spec["issuerRef"]["name"], self.namespace))["spec"]
        there = await self.admin.find(SECRETS, spec["secretName"], self.namespace)
        key = ec.generate_private_key(ec.SECP256R1())
        if there is not None and spec["privateKey"]["rotationPolicy"] == "Never":
            key = _key(there)
        if "ca" in issuer:
            signer = await self.admin.get(SECRETS, issuer["ca"]["secretName"], self.namespace)
            authority = _certificate(signer, CERTIFICATE_PEM)
            signed = _build(spec, key, authority.subject).sign(_key(signer), hashes.SHA256())
        else:
            signed = authority = _build(spec, key, _subject(spec)).sign(key, hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        pems = zip(
            (CERTIFICATE_PEM, KEY_PEM, CA_PEM),
            (signed.public_bytes(Encoding.PEM), private, authority.public_bytes(Encoding.PEM)),
            strict=True,
        )
        data = {each: base64.b64encode(pem).decode() for each, pem in pems}
        if there is None:
            metadata = {"name": spec["secretName"]}
            secret = {"metadata": metadata, "type": "kubernetes.io/tls", "data": data}
            await self.admin.create(SECRETS, secret, self.namespace)
        else:
            await self.admin.patch(SECRETS, spec["secretName"], {"data": data}, self.namespace)
        return signed

    async def forget(self, name: str) -> None:
        """Delete the Secret of a Certificate: the next one has another key."""
        spec = (await self.admin.get(CERTIFICATES, name, self.namespace))["spec"]
        await self.admin.delete(SECRETS, spec["secretName"], self.namespace)

    async def inject(self) -> None:
        """Have the webhook configurations that ask for it trust who signed their Certificate."""
        for kind in CONFIGURATIONS:
            for each in await self.admin.list(kind):
                place, _, name = each["metadata"].get("annotations", {}).get(INJECT, "").partition("/")
                if place != self.namespace:
                    continue
                spec = (await self.admin.get(CERTIFICATES, name, self.namespace))["spec"]
                secret = await self.admin.get(SECRETS, spec["secretName"], self.namespace)
                for webhook in each["webhooks"]:
                    webhook["clientConfig"]["caBundle"] = secret["data"][CA_PEM]
                await self.admin.replace(kind, each)


def _certificate(secret: dict[str, Any], name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(base64.b64decode(secret["data"][name]))


def _key(secret: dict[str, Any]) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(base64.b64decode(secret["data"][KEY_PEM]), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _subject(spec: dict[str, Any]) -> x509.Name:
    common = spec.get("commonName")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else [])


def _build(spec: dict[str, Any], key: ec.EllipticCurvePrivateKey, issuer: x509.Name) -> x509.CertificateBuilder:
    now, authority = datetime.now(UTC), bool(spec.get("isCA"))
    hours = int(spec["duration"].removesuffix("h"))
    made = (
        x509.CertificateBuilder(issuer, _subject(spec), key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=hours))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if "server auth" in spec.get("usages", ()):
        made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    if names := spec.get("dnsNames"):
        # Critical, since there is no subject.  Source: RFC 5280, 4.2.1.6.
        alternative = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
        made = made.add_extension(alternative, critical=not spec.get("commonName"))
    return made
