"""Find etcd and kube-apiserver on this machine, and say how etcd is called.

In this order: the folder that KUBEBUILDER_ASSETS names, the PATH, what
`setup-envtest` has downloaded, what this project's checkout has built.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shardsdk.errors import ConfigurationError

_NAMES: Final = ("etcd", "kube-apiserver")


@dataclass(frozen=True, slots=True)
class Programs:
    """How each program is called, and where it comes from (for people)."""

    etcd: tuple[str, ...]
    kube_apiserver: tuple[str, ...]
    source: str


def find_programs(environment: Mapping[str, str] | None = None) -> Programs:
    """The first place that has both.  Raises: ConfigurationError with how to get them."""
    environment = os.environ if environment is None else environment
    for folders, source in _places(environment):
        found = [shutil.which(name, path=folders) for name in _NAMES]
        if found[0] and found[1]:
            return Programs((found[0],), (found[1],), source)
    # One program that is told which of the two to be.
    combined = _newest(_cache(environment), "controller-sharding/localcluster/*/controlplane")
    if combined is not None:
        return Programs((str(combined), "etcd"), (str(combined), "kube-apiserver"), f"cache ({combined})")
    raise ConfigurationError(
        "etcd and kube-apiserver are not on this machine: set KUBEBUILDER_ASSETS to a folder that has both (for example"
        " by `export KUBEBUILDER_ASSETS=$(setup-envtest use -p path)`), or put them on the PATH"
    )


def lone_etcd_flags(data: Path, port: int, host: str) -> list[str]:
    """Flags of a single etcd that need not survive a power cut; it keeps all in `data`."""
    url = f"http://{host}:{port}"
    return [
        f"--data-dir={data}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        # Nobody talks to peers, so any free port will do; the name below is never called.
        "--listen-peer-urls=http://127.0.0.1:0",
        "--initial-advertise-peer-urls=http://localhost:2380",
        "--initial-cluster=default=http://localhost:2380",
        "--unsafe-no-fsync",
        # Alone it wins every election: no need to wait a second for rivals. Shorter ones keep a core awake.
        "--heartbeat-interval=100",
        "--election-timeout=500",
        "--log-level=warn",
    ]


def _places(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if assets := environment.get("KUBEBUILDER_ASSETS"):
        yield assets, f"KUBEBUILDER_ASSETS ({assets})"
    if path := environment.get("PATH"):
        yield path, "PATH"
    data = Path(environment.get("XDG_DATA_HOME") or _home(environment) / ".local" / "share")
    if envtest := _newest(data, "kubebuilder-envtest/k8s/*/kube-apiserver"):
        yield str(envtest.parent), f"setup-envtest ({envtest.parent})"


def _cache(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("XDG_CACHE_HOME") or _home(environment) / ".cache")


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or os.path.expanduser("~"))  # without a home there is nothing in "~"


def _newest(folder: Path, pattern: str) -> Path | None:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime, default=None)
