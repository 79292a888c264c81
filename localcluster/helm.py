"""Find Helm, or have it built once.

In this order: the `PATH`, the user's cache, a build from its Go module into that
cache.  A Helm of another major version than 3 is passed over, with a word about
it.

Refuses: to download ready-made programs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcluster.binaries import KUBERNETES_VERSION, MODULE, cache_home, platform_name, say
from localcluster.build import Say, go_variables
from localcluster.drafts import draft_folder, one_at_a_time
from localcluster.errors import BinariesMissing
from localcluster.golang import find_go

HELM_VERSION: Final = "v3.19.2"
_PACKAGE: Final = "helm.sh/helm/v3/cmd/helm"
_VERSION_SECONDS: Final = 30.0
#: Compiler cache and program.  Source: measured, 1.4 GiB; where Go has no sources yet, those come on top.
_BUILD_BYTES: Final = 3 << 30

#: Builds Helm to a file; told the environment and whom to tell.
Build = Callable[[Path, Mapping[str, str], Say], None]


@dataclass(frozen=True, slots=True)
class Helm:
    """The program, and where it comes from (for people)."""

    program: Path
    source: str


def find_helm(environment: Mapping[str, str] | None = None, *, build: Build | None = None, tell: Say = say) -> Helm:
    """Find Helm in the `environment` (the process's own by default), or `build` it.

    Raises: BinariesMissing when there is none and it could not be built.
    """
    environment = os.environ if environment is None else environment
    on_path = shutil.which("helm", path=environment.get("PATH", os.defpath))
    if on_path:
        version = helm_version(on_path)
        if version is not None and version.startswith("v3."):
            return Helm(Path(on_path), f"PATH ({on_path}, {version})")
        tell(f"localcluster: {on_path} is Helm {version or 'of an unknown version'}, not 3; not used")
    cached = cached_helm(environment)
    if cached.exists():
        return Helm(cached, f"cache ({cached})")
    (build or build_helm)(cached, environment, tell)
    return Helm(cached, f"built from its Go module ({cached})")


def cached_helm(environment: Mapping[str, str]) -> Path:
    """Where the built program lies, per user, version, platform and the Kubernetes for which it renders charts."""
    kubernetes = KUBERNETES_VERSION.rpartition(".")[0]
    return cache_home(environment) / f"helm-{HELM_VERSION}-kubernetes-{kubernetes}-{platform_name()}" / "helm"


def helm_version(program: str) -> str | None:
    """What it says, as `v3.19.2`; `None` when it does not run."""
    command = [program, "version", "--template={{ .Version }}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"v\d+\.\d+\.\d+", done.stdout)
    return match[0] if match and done.returncode == 0 else None


def build_helm(target: Path, environment: Mapping[str, str], tell: Say) -> None:
    """Build Helm to the file `target`; of two at once, one builds and the other waits.

    Raises: BinariesMissing.
    """
    cache = target.parent.parent
    cache.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(cache / "helm.lock", tell):
        if target.exists():
            return
        compiler = find_go(MODULE / "go.mod", cache, environment, tell)
        with draft_folder(cache, ".helm-") as draft:
            free = shutil.disk_usage(cache).free
            if free < _BUILD_BYTES:
                raise BinariesMissing(
                    f"building Helm needs {_BUILD_BYTES >> 30} GiB of disk for a while, {free / (1 << 30):.1f} GiB are"
                    f" free in {cache}; make room, or put helm on the PATH"
                )
            tell(f"localcluster: building Helm {HELM_VERSION} from its Go module, once; this takes some minutes")
            _compile(compiler, draft, environment)
            target.parent.mkdir(parents=True, exist_ok=True)
            (draft / "helm").replace(target)


def _compile(compiler: Path, draft: Path, environment: Mapping[str, str]) -> None:
    variables = {**go_variables(compiler, draft, environment), "GOBIN": str(draft)}
    flags = ["-trimpath", "-ldflags", f"-s -w {_stamps()}"]
    done = subprocess.run(
        [str(compiler), "install", *flags, f"{_PACKAGE}@{HELM_VERSION}"],
        cwd=draft, env=variables, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BinariesMissing(
            "Helm could not be built; Go's words are above. Mend that (a proxy? GOPROXY?), or put helm on the PATH"
        )


def _stamps() -> str:
    """What Helm's own build sets: its version, and for which Kubernetes it renders without a cluster."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    stamps = {"helm.sh/helm/v3/internal/version.version": HELM_VERSION}
    for package in ("pkg/chartutil", "pkg/lint/rules"):
        stamps[f"helm.sh/helm/v3/{package}.k8sVersionMajor"] = major
        stamps[f"helm.sh/helm/v3/{package}.k8sVersionMinor"] = minor
    return " ".join(f"-X {name}={value}" for name, value in stamps.items())
