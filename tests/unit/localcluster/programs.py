"""Stand-ins for programs: little shell scripts."""

from __future__ import annotations

from pathlib import Path

from localcluster.binaries import PROGRAMS


def write_script(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def write_programs(folder: Path, version: str = "v1.35.0", *, without: str = "") -> Path:
    """A folder of Kubernetes programs that do nothing but tell their version."""
    for program in PROGRAMS:
        if program != without:
            write_script(folder / program, f"echo Kubernetes {version}")
    return folder


def write_go(folder: Path, version: str = "go1.26.1", *, build: str = 'echo program > "$output"') -> Path:
    """A Go compiler that knows two packages; `build` runs when it is to build the file `$output`."""
    return write_script(
        folder / "go",
        f"""
case $1 in
  version) echo go version {version} linux/amd64 ;;
  env) echo "{folder}/none" ;;
  list) echo go: downloading example.com/x v1.0.0 >&2; echo fmt; echo example.com/x ;;
  build)
    echo built >> {folder}/builds
    while [ "$1" != -o ]; do shift; done
    output=$2
    echo fmt >&2
    {build} ;;
esac""",
    )
