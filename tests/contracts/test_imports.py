"""The packages' directions hold, and the rules that say so do bite."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = "from importlinter.cli import lint_imports; import sys; sys.exit(lint_imports(cache_dir=None))"

PLANTED = {
    "sharder/core/planted.py": [
        "import time",
        "import random",
        "import asyncio",
        "import logging",
        "import os",
        "import aiohttp",
        "import shardsdk.kube.client",
        "import shardsdk.lease.keeper",
        "import sharder.cache",
        "import sharder.webhook",
    ],
    "sharder/cache/planted.py": [
        "import sharder.backlog",
        "import sharder.takeover",
        "import sharder.webhook",
        "import shardsdk.protocol.verdict",
        "import kubernetes",
    ],
    "sharder/backlog/planted.py": ["import sharder.takeover", "import sharder.placement", "import sharder.rings"],
    "sharder/kubectl/planted.py": ["import sharder.rings", "import sharder.config", "import shardsdk.reconcile"],
    "sharder/webhook/planted.py": ["import sharder.rings", "import sharder.service"],
    "shardsdk/protocol/planted.py": ["import socket", "import shardsdk.lease", "import sharder.core"],
    "shardsdk/kube/planted.py": ["import shardsdk.lease", "import shardsdk.reconcile", "import sharder"],
    "shardsdk/cache/planted.py": ["import shardsdk.queueing", "import sharder.core", "import kubernetes.aio"],
    "shardsdk/lease/planted.py": ["import shardsdk.reconcile", "import shardsdk.process"],
    "shardsdk/process/planted.py": ["import shardsdk.serving"],
    "shardsdk/serving/planted.py": ["import shardsdk.testing", "import sharder.core", "import kubernetes"],
    "shardsdk/queueing/planted.py": ["import shardsdk.reconcile", "import shardsdk.objects"],
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", LINT], cwd=folder, capture_output=True, text=True, check=False)


def test_imports_point_one_way() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the linter says of a copy in which every rule is broken."""
    folder = tmp_path_factory.mktemp("planted")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in ("sharder", "shardsdk"):
        shutil.copytree(ROOT / package, folder / package)
    for module in ("sharder/service.py", "shardsdk/kube/client.py"):
        (folder / module).touch()
    for path, lines in PLANTED.items():
        (folder / path).write_text("\n".join(lines) + "\n")
    return lint(folder).stdout


@pytest.mark.parametrize(
    ("path", "line"), [(path, line) for path, lines in PLANTED.items() for line in lines], ids=lambda text: text
)
def test_import_in_the_wrong_direction_is_found(planted: str, path: str, line: str) -> None:
    importer = path.removesuffix(".py").replace("/", ".")
    imported = line.removeprefix("import ").split(".")
    found = [row for row in planted.splitlines() if importer in row]
    # External packages are named by their root.
    names = [".".join(imported[: end + 1]) for end in range(len(imported))]
    assert any(row.split("-> ")[-1].split(" (")[0].strip() in names for row in found), found
