"""Kubeconfig files that kubectl, helm and every client library accept."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster.pki import Pair


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the API server is, and the CA that its certificate is checked with."""

    url: str
    ca_bundle: bytes


def token_credentials(token: str) -> dict[str, Any]:
    """Authenticate by a bearer token."""
    return {"token": token}


def certificate_credentials(pair: Pair) -> dict[str, Any]:
    """Authenticate by a client certificate, embedded."""
    return {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}


def write_kubeconfig(
    path: Path, cluster: Cluster, user: str, credentials: dict[str, Any], namespace: str = "default"
) -> Path:
    """Write a kubeconfig with one context; JSON is YAML, and only the owner may read it."""
    name = "localcluster"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": cluster.url, "certificate-authority-data": _base64(cluster.ca_bundle)},
            }
        ],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": namespace}}],
        "current-context": name,
    }
    # Replaced as a whole: another process may be reading it.
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(content, indent=2) + "\n")
    draft.replace(path)
    return path


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
