"""The wheel, installed with pip where nothing else is, is all that the README's example needs.

Whatever is installed has the version and the hash of the lock file.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from localcluster import ControlPlane
from localcluster.ports import LOOPBACK, reserve_port
from tests.contracts.test_readme import BLOCKS

ROOT = Path(__file__).parents[2]
PROJECT = "controller-sharding"
#: Creating an environment and filling it takes most of it.
PATIENCE_SECONDS = 900.0
FILES = {block.file: block.text for block in BLOCKS if block.file}
LEASES, CONFIGMAPS = "coordination.k8s.io/v1/leases", "v1/configmaps"
#: What the commands of `kubectl sharding` are made of; they need no web framework.
PLUGIN = tuple(f"sharder.kubectl.{name}" for name in ("status", "explain", "check", "cleanup", "suggestions"))
RINGS = "sharding.timebertt.dev/v1alpha1/clusterrings"
Objects = list[dict[str, Any]]


class Environment:
    """A virtual environment in `folder` that knows nothing of this checkout."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        self.variables = {
            "PATH": f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(folder),
            "KUBECONFIG": str(kubeconfig),
            "PYTHONUNBUFFERED": "1",
        }
        # How this machine reaches the package index, and where pip keeps what it had before.
        kept = ("PIP_INDEX_URL", "PIP_CACHE_DIR", "PIP_CERT", "PIP_CONFIG_FILE", "SSL_CERT_FILE", "XDG_CACHE_HOME")
        proxies = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
        self.pip_variables = {
            name: value for name in (*kept, *proxies, "HOME") if (value := os.environ.get(name)) is not None
        }

    async def make(self) -> None:
        await self._run([sys.executable, "-m", "venv", "--without-pip", str(self.folder / "venv")])

    async def install(self, *arguments: str) -> None:
        await self.pip("install", "--quiet", "--no-compile", *arguments)

    async def pip(self, *arguments: str) -> str:
        """Run this interpreter's pip on the environment: one of its own takes longer to install than the rest."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.bin / "python")]
        return await self._run([*pip, *arguments], self.pip_variables)

    async def output_of(self, *command: str) -> str:
        return await self._run([str(self.bin / command[0]), *command[1:]])

    async def _run(self, command: list[str], more: dict[str, str] | None = None) -> str:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.folder, env=self.variables | (more or {}),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return out.decode()

    @asynccontextmanager
    async def running(self, *command: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A program, while it is wanted."""
        log = self.folder / f"{'-'.join(command[:3])}.log".replace("/", "-")
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                str(self.bin / command[0]), *command[1:], cwd=self.folder, env=self.variables,
                stdout=output, stderr=output,
            )  # fmt: skip
        try:
            yield process
        except BaseException:
            sys.stdout.write(f"--- {' '.join(command)}\n{log.read_text()[-6000:]}\n")  # shown with the failure
            raise
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def locked(extras: Iterable[str] = ()) -> str:
    """The part of the lock file that the project needs with these extras."""
    needed, left = set[str](), [(PROJECT, frozenset(extras))]
    while left:
        name, wanted = left.pop()
        for line in requires(name) or ():
            need = Requirement(line)
            found = _canonical(need.name)
            applies = need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *wanted))
            if applies and found not in needed:
                needed.add(found)
                left.append((need.name, frozenset(need.extras)))
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements-dev.txt").read_text())
    chosen = [
        entry for entry in entries if not entry.startswith("#") and _canonical(entry.partition("==")[0]) in needed
    ]
    return "\n".join(chosen)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).strip().lower()


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_SECONDS)
async def test_the_readmes_example_runs_from_the_wheel_alone(fresh_control_plane: ControlPlane, tmp_path: Path) -> None:
    plane = fresh_control_plane
    environment = Environment(tmp_path, plane.admin_kubeconfig)
    ports = [reserve_port() for _ in range(3)]
    for name, text in FILES.items():
        for port, written in zip(ports, ("8081", "8080", "9443"), strict=True):
            text = text.replace(f"{LOOPBACK}:{written}", f"{LOOPBACK}:{port.number}")
            text = text.replace(f"port: {written}", f"port: {port.number}")
        (tmp_path / name).write_text(text)
    wheel = await asyncio.to_thread(build_wheel, tmp_path)
    (tmp_path / "shard.txt").write_text(locked())
    (tmp_path / "kubectl.txt").write_text(locked(["kubectl"]))
    (tmp_path / "sharder.txt").write_text(locked(["sharder"]))

    async with asyncio.timeout(PATIENCE_SECONDS):
        await environment.make()
        await environment.install("--require-hashes", "--requirement", "shard.txt")
        await environment.install("--no-deps", str(wheel))
        await environment.pip("check")
        assert (await environment.output_of("shardsdk", "version")).startswith("shardsdk ")
        assert (await environment.output_of("kubectl-sharding", "--version")).startswith("kubectl-sharding ")
        await environment.install("--require-hashes", "--requirement", "kubectl.txt")
        assert "kind: ClusterRoleBinding" in await environment.output_of("kubectl-sharding", "rbac", "-f", "ring.yaml")
        await environment.output_of("python", "-c", f"import {', '.join(PLUGIN)}")
        assert "status" in await environment.output_of("kubectl_complete-sharding", "")
        listed = await environment.pip("list")
        assert "aiohttp" in listed
        assert "fastapi" not in listed

        async with plane.admin() as admin, environment.running("python", "shard.py", "one"):
            await admin.eventually(LEASES, lambda leases: _held(leases, "one"), "default", timeout_seconds=120)

            await environment.install("--require-hashes", "--requirement", "sharder.txt")
            await plane.apply(stdin=await environment.output_of("sharder", "crds"))
            await plane.apply(ROOT / "rbac" / "sharder.yaml", tmp_path / "ring.yaml")
            await plane.apply(stdin=await environment.output_of("sharder", "rbac", "-f", "ring.yaml"))
            async with (
                environment.running("sharder", "--config", "sharder.yaml"),
                environment.running("python", "shard.py", "two"),
            ):
                await admin.eventually(RINGS, lambda rings: _available(rings) == 2, timeout_seconds=120)
                for number in range(8):
                    await admin.create("v1/secrets", {"metadata": {"name": f"s-{number}"}}, "default")
                made = await admin.eventually(CONFIGMAPS, _all_seen, "default", timeout_seconds=120)
    assert {each["data"]["by"] for each in made} == {"one", "two"}
    for port in ports:
        port.release()


def _held(leases: Objects, name: str) -> bool:
    return any(each["metadata"]["name"] == name == each["spec"].get("holderIdentity") for each in leases)


def _available(rings: Objects) -> int:
    return max(((each.get("status") or {}).get("availableShards") or 0 for each in rings), default=0)


def _all_seen(configmaps: Objects) -> Objects | None:
    made = [each for each in configmaps if each["metadata"]["name"].endswith("-seen")]
    return made if len(made) == 8 else None


def test_what_the_wheel_is_installed_with_is_in_the_lock() -> None:
    names = {entry.partition("==")[0] for entry in locked(["sharder"]).split("\n") if "==" in entry}
    assert {"aiohttp", "kubernetes", "msgspec", "prometheus-client", "fastapi", "uvicorn", "xxhash"} <= names
    assert "pytest" not in names
