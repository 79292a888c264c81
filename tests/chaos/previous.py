"""The version before this one: built as a wheel from the history, once a machine, and unpacked for processes.

Nothing is installed from it: what it imports, today's lock has, and its folder comes before everything else on the path
of the processes that are to be of that version.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from localcluster.binaries import cache_home
from localcluster.installation import ROOT

#: The last commit of the main branch before this version's work began.
COMMIT: Final = "ecd8d6d7c61b0e6db8a6ed4f1daac37416fbfb95"
_EXTRAS: Final = ("", "sharder")


@dataclass(frozen=True, slots=True)
class Program:
    """Which version processes are of: what makes them so, and which shard they run."""

    shard_module: str
    environment: Mapping[str, str]


#: This checkout.
TODAY: Final = Program("tests.chaos.recording_shard", {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": ""})


@cache
def previous() -> Program:
    """The version before.  Raises: LookupError, when history or dependencies are not there; it says what to do."""
    folder = unpacked()
    # Neither the current folder nor a script's comes first: both may hold today's packages.
    return Program(
        "tests.chaos.previous_shard", {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"}
    )  # fmt: skip


def unpacked(commit: str = COMMIT, home: Path | None = None) -> Path:
    """The folder with that version's packages, built if it is not there yet.  Raises: LookupError."""
    folder = (home or cache_home(os.environ)) / f"version-{commit[:12]}"
    if not folder.exists():
        sources = _archive(commit)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="version-") as work:
            made = _build(sources, Path(work))
            try:
                made.rename(folder)
            except OSError:
                # Somebody else has built it meanwhile.
                if not folder.exists():
                    raise
    _check(folder)
    return folder


def _archive(commit: str) -> bytes:
    found = _find(commit)
    if found.returncode:
        # A shallow clone lacks it, and may be given it alone.
        _git("fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "origin", commit)
        found = _find(commit)
    if found.returncode:
        raise LookupError(
            f"{ROOT} has no commit {commit[:12]}, the version before this one, which is built from the history: fetch"
            " it (git fetch --unshallow in a shallow clone), and see that git is installed; git says:"
            f" {found.stderr.decode().strip()}"
        )
    return _git("archive", "--format=tar", commit).stdout


def _find(commit: str) -> subprocess.CompletedProcess[bytes]:
    return _git("cat-file", "-e", f"{commit}^{{commit}}")


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-c", f"safe.directory={ROOT}", *arguments], cwd=ROOT, capture_output=True, check=False
        )
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(["git"], 127, b"", str(error).encode())


def _build(sources: bytes, work: Path) -> Path:
    """A wheel of these sources, unpacked; by the build backend that the lock has, so nothing is fetched."""
    with tarfile.open(fileobj=io.BytesIO(sources)) as archive:
        if hasattr(tarfile, "data_filter"):  # since Python 3.11.4
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(work / "sources")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(work / "dist")],
        cwd=work / "sources", capture_output=True, check=True,
    )  # fmt: skip
    [wheel] = (work / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(work / "packages")
    return work / "packages"


def _check(folder: Path) -> None:
    [about] = folder.glob("*.dist-info/METADATA")
    asked = HeaderParser().parsestr(about.read_text()).get_all("Requires-Dist") or []
    missing = [each for each in map(Requirement, asked) if _needed(each) and not _met(each)]
    if missing:
        raise LookupError(
            f"the version before this one needs {', '.join(map(str, missing))}, which this environment does not have:"
            " name a later commit as the version before, in tests/chaos/previous.py, or lock what both can work with"
        )


def _needed(requirement: Requirement) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in _EXTRAS)


def _met(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False
