"""cert-manager's resource types without what is behind them: the fields of v1 that are written here, and no others."""

from __future__ import annotations

from typing import Any, Final

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
