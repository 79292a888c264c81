"""The image of the container that holds a pod's namespaces: one static program that waits.

Refuses: to be a registry's image; containerd is told its name and given the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any, Final

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write_pause_archive(program: Path, image: str, target: Path) -> None:
    """Write the archive of `image`, which runs `program` (linked statically) as a pause process."""
    layer = _tar({"pause": (program.read_bytes(), 0o755)})
    machine = platform.machine()
    config: dict[str, Any] = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": ["/pause", "-P"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    files = {
        "layer.tar": (layer, 0o644),
        "config.json": (json.dumps(config).encode(), 0o644),
        "manifest.json": (json.dumps(manifest).encode(), 0o644),
    }
    target.write_bytes(_tar(files))


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    """An archive without times and owners, so that it is the same every time."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, (data, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()
