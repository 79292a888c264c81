"""Find the Kubernetes programs, or have them built once.

In this order, and the first that has all four programs wins: the folder that
`KUBEBUILDER_ASSETS` names, the `PATH`, the user's cache, a build from Go modules
into that cache.  Programs of another minor version than 1.34 to 1.36 are passed
over, with a word about it.

Refuses: to download ready-made programs, and to build where one build is
running already (it waits for that one).
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcluster.build import Say, build_controlplane

KUBERNETES_VERSION: Final = "v1.36.3"
#: Minor versions of the API server that tests and demo are known to work with.
_MINORS: Final = range(34, 37)
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
MODULE: Final = Path(__file__).with_name("controlplane")
_VERSION_SECONDS: Final = 30.0

#: Builds a module, of a version, to a file; told the environment and whom to tell.
Build = Callable[[Path, str, Path, Mapping[str, str], Say], None]


@dataclass(frozen=True, slots=True)
class Binaries:
    """How each program is called, and where it comes from (for people)."""

    etcd: tuple[str, ...]
    kube_apiserver: tuple[str, ...]
    kube_controller_manager: tuple[str, ...]
    kubectl: tuple[str, ...]
    source: str


def say(message: str) -> None:
    """Tell the user, on standard error: standard output is for `export KUBECONFIG`."""
    print(message, file=sys.stderr, flush=True)


def find_binaries(
    environment: Mapping[str, str] | None = None,
    *,
    build: Build = build_controlplane,
    tell: Say = say,
) -> Binaries:
    """Find the programs in the `environment` (the process's own by default), or `build` them.

    Raises: BinariesMissing when there are none and the build failed.
    """
    environment = os.environ if environment is None else environment
    found = find_installed(environment, tell)
    if found:
        return found
    combined = cache_folder(environment) / "controlplane"
    if combined.exists():
        return _combined(combined, f"cache ({combined})")
    build(MODULE, KUBERNETES_VERSION, combined, environment, tell)
    return _combined(combined, f"built from Go modules ({combined})")


def minor_of(binaries: Binaries) -> int | None:
    """The minor version of their API server; `None` when it does not say."""
    version = _version_of(binaries.kube_apiserver)
    return None if version is None else version[1]


def find_installed(environment: Mapping[str, str], tell: Say = say) -> Binaries | None:
    """The programs that are on this machine anyway; `None` when some are missing."""
    assets = environment.get("KUBEBUILDER_ASSETS", "")
    path = environment.get("PATH", os.defpath)
    found = _in_folders(assets, path, f"KUBEBUILDER_ASSETS ({assets})", tell) if assets else None
    return found or _in_folders(path, path, "PATH", tell)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder of the combined program."""
    return build_folder(MODULE, environment)


def build_folder(module: Path, environment: Mapping[str, str]) -> Path:
    """The folder of a module's program: per user, version, platform and module sources."""
    sources = b"\0".join((module / name).read_bytes() for name in ("go.mod", "main.go"))
    digest = hashlib.sha256(sources).hexdigest()[:8]
    return cache_home(environment) / f"{KUBERNETES_VERSION}-{platform_name()}-{digest}"


def platform_name() -> str:
    """This machine as Go calls it: `linux-amd64`."""
    machine = platform.machine().lower()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    return f"{platform.system().lower()}-{architecture}"


def cache_home(environment: Mapping[str, str]) -> Path:
    """The user's folder for what is worth keeping between runs."""
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home(), ".cache")
    return Path(home, "controller-sharding", "localcluster")


def _combined(path: Path, source: str) -> Binaries:
    etcd, apiserver, manager, kubectl = ((str(path), program) for program in PROGRAMS)
    return Binaries(etcd, apiserver, manager, kubectl, source)


def _in_folders(search: str, path: str, source: str, tell: Say) -> Binaries | None:
    paths = {program: shutil.which(program, path=search) for program in PROGRAMS}
    paths["kubectl"] = paths["kubectl"] or shutil.which("kubectl", path=path)
    found = [path for path in paths.values() if path]
    missing = [program for program, path in paths.items() if not path]
    if missing:
        # kubectl alone is on many machines; that is no control plane worth a word.
        if set(PROGRAMS) - set(missing) - {"kubectl"}:
            tell(f"localcluster: {source} has no {', '.join(missing)}; not used")
        return None
    version = _version_of([paths["kube-apiserver"] or ""])
    if version is None or version[0] != 1 or version[1] not in _MINORS:
        shown = "of an unknown version" if version is None else f"{version[0]}.{version[1]}"
        tell(f"localcluster: kube-apiserver in {source} is {shown}, not 1.{_MINORS[0]} to 1.{_MINORS[-1]}; not used")
        return None
    etcd, apiserver, manager, kubectl = ((path,) for path in found)
    return Binaries(etcd, apiserver, manager, kubectl, source)


def _version_of(apiserver: Sequence[str]) -> tuple[int, int] | None:
    try:
        done = subprocess.run(
            [*apiserver, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"v(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else None
