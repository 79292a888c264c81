"""The certificate of a webhook that a benchmark starts."""

from __future__ import annotations

from pathlib import Path

from localcluster.pki import Authority


def write_certificates(folder: Path) -> Path:
    """A folder with tls.crt and tls.key of a server on the loopback interface, and their ca.crt."""
    authority = Authority(folder / "certificates")
    certificate, key = authority.write_serving_pair()
    certificate.rename(authority.folder / "tls.crt")
    key.rename(authority.folder / "tls.key")
    return authority.folder
