"""Kubeconfigs, ServiceAccounts and certificates for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shardsdk.kube.access import SERVICE_ACCOUNT_VARIABLE, load_access
from shardsdk.kube.server import Access
from tests.kube_fakes import InstantClock


def certificate(
    name: str = "test", address: str = "127.0.0.1", *, by: tuple[str, str] | None = None, signs: bool = False
) -> tuple[str, str]:
    """A certificate, also of a server at `address`, and its key, as PEM; signed `by` itself, unless another is named.

    `signs` has it be an authority's.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = subject, key
    if by is not None:
        issuer = x509.load_pem_x509_certificate(by[0].encode()).subject
        loaded = serialization.load_pem_private_key(by[1].encode(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
    now = datetime(2026, 1, 1, tzinfo=UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return built.public_bytes(serialization.Encoding.PEM).decode(), pem.decode()


def kubeconfig(folder: Path, user: dict[str, Any], *, name: str = "config", **cluster: Any) -> str:
    """Write a kubeconfig with one context, `here`, in namespace `team`."""
    cluster.setdefault("server", "http://127.0.0.1:8001")
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return str(path)


def read(path: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(Path(path).read_text())
    return content


def write(path: str, content: dict[str, Any]) -> None:
    Path(path).write_text(yaml.safe_dump(content))


def service_account(folder: Path) -> Path:
    """The files of a pod's ServiceAccount."""
    folder.mkdir()
    (folder / "token").write_text("pod-token\n")
    (folder / "ca.crt").write_text(certificate()[0])
    (folder / "namespace").write_text("pods-namespace")
    return folder


def in_cluster(account: Path) -> dict[str, str]:
    """The environment of a pod whose ServiceAccount is mounted at `account`."""
    return {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        SERVICE_ACCOUNT_VARIABLE: str(account),
    }


async def load(tmp_path: Path, kubeconfig: str | Path | None = None, **options: Any) -> Access:
    options.setdefault("environ", {"HOME": str(tmp_path / "home")})
    options.setdefault("clock", InstantClock())
    return await load_access(kubeconfig, **options)


async def authorization(access: Access) -> str | None:
    return (await access.headers()).get("Authorization")
