"""By what the shards of a run are known to the API server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from localcluster import ControlPlane

#: The kubeconfig of the shards' ServiceAccount, in a run's folder.
SHARED: Final = "shards.kubeconfig"


def kubeconfig_of(folder: Path, name: str, port: int, user: Mapping[str, str] | None) -> Path:
    """A shard's kubeconfig: by the network at that port, and as that user (`None`: with the ServiceAccount's token)."""
    path = folder / f"{name}.kubeconfig"
    config = json.loads((folder / SHARED).read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    if user is not None:
        config["users"][0]["user"] = dict(user)
    path.write_text(json.dumps(config))
    return path


def write_certificate(plane: ControlPlane, folder: Path, account: str, valid: timedelta) -> dict[str, str]:
    """Put a client certificate of a ServiceAccount, `namespace/name`, into its files; returns a kubeconfig's user."""
    namespace, _, name = account.partition("/")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    pair = plane.client_pair(f"system:serviceaccount:{namespace}:{name}", groups, valid)
    files = {"client-key": pair.key, "client-certificate": pair.certificate}
    for file, content in files.items():
        written = folder / f"{file}.new"
        written.write_bytes(content)
        written.replace(folder / file)
    return {file: str(folder / file) for file in files}
