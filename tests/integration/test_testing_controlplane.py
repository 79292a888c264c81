"""The control plane that users' tests start: real, installed with their types, and gone with its owner."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from localcluster import ControlPlane as Localcluster
from localcluster import find_binaries
from shardsdk import Client, ConfigurationError, Resource, load_access
from shardsdk.testing import ControlPlane, ControlPlaneFailed, Programs, find_programs

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CLUSTERRINGS = Resource("sharding.timebertt.dev", "v1alpha1", "clusterrings", "ClusterRing", namespaced=False)
CRDS = Path("crds")


@pytest.fixture(scope="module")
def programs(control_plane: Localcluster) -> Programs:
    """Those that the tests have found or built; `control_plane` has seen to that before the clock ticks."""
    binaries = find_binaries()
    return Programs(binaries.etcd, binaries.kube_apiserver, "tests")


async def test_it_serves_the_types_that_it_was_given(programs: Programs) -> None:
    with ControlPlane(crds=[CRDS], programs=programs) as plane:
        async with Client(await load_access(str(plane.kubeconfig))) as client:
            assert (await client.get(NAMESPACES, "default")).metadata.name == "default"
            body = {"metadata": {"name": "mine"}, "spec": {"resources": [{"group": "", "resource": "secrets"}]}}
            made = await client.create(
                CLUSTERRINGS, body | {"apiVersion": CLUSTERRINGS.api_version, "kind": "ClusterRing"}
            )
            assert made.metadata.name == "mine"
        with pytest.raises(ControlPlaneFailed, match="404"):
            plane.request("GET", "/api/v1/namespaces/none")
        with pytest.raises(ControlPlaneFailed, match="200, which is not JSON: b'ok'"):
            plane.request("GET", "/readyz")
        with pytest.raises(ConfigurationError, match="has no CustomResourceDefinition"):
            plane.install(Path("rbac"))
        plane.url = "https://127.0.0.1:1"
        with pytest.raises(ControlPlaneFailed, match=r"GET /api/v1: no answer: .*refused"):
            plane.request("GET", "/api/v1")
        folder = plane.folder
    assert not folder.exists()
    plane.stop()


async def test_nothing_outlives_its_owner(programs: Programs) -> None:
    code = (
        "import sys, time; from shardsdk.testing import ControlPlane, Programs\n"
        f"plane = ControlPlane(programs={programs!r}); plane.start()\n"
        "print(plane.folder, flush=True); time.sleep(600)"
    )
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    folder = (await owner.stdout.readline()).decode().strip()
    assert processes_in(folder)
    owner.send_signal(signal.SIGKILL)
    await owner.wait()
    async with asyncio.timeout(120):
        while processes_in(folder):
            await asyncio.sleep(0.05)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_keeps_nothing_running(programs: Programs) -> None:
    plane = ControlPlane(programs=programs)
    plane.start()
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    forked.start()
    stopping = threading.Thread(target=plane.stop, daemon=True)
    try:
        stopping.start()
        stopping.join(60)
        assert not stopping.is_alive()
    finally:
        forked.kill()
        forked.join()
        stopping.join()


def test_a_folder_of_definitions_that_is_not_there_is_named_before_anything_starts(
    programs: Programs, tmp_path: Path
) -> None:
    missing = tmp_path / "config"
    with pytest.raises(ConfigurationError, match=r"config', which is not there.*`shardsdk crd PROGRAM\.py`"):
        ControlPlane(crds=[missing], programs=programs).start()


def test_a_program_that_does_not_start_says_why(programs: Programs) -> None:
    plane = ControlPlane(programs=programs, apiserver_flags=["--no-such-flag"])
    with pytest.raises(ControlPlaneFailed, match=r"(?s)kube-apiserver ended with 1.*no-such-flag"):
        plane.start()
    with pytest.raises(ControlPlaneFailed, match="does not run"):
        plane.folder  # noqa: B018


def test_programs_are_looked_for_where_developers_have_them(tmp_path: Path) -> None:
    def install(*parts: str) -> Path:
        folder = tmp_path.joinpath(*parts)
        folder.mkdir(parents=True)
        for name in ("etcd", "kube-apiserver"):
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        return folder

    environment = {"HOME": str(tmp_path), "PATH": ""}
    with pytest.raises(ConfigurationError, match="KUBEBUILDER_ASSETS"):
        find_programs(environment)
    envtest = install(".local", "share", "kubebuilder-envtest", "k8s", "1.35.0-linux-amd64")
    assert find_programs(environment).etcd == (str(envtest / "etcd"),)
    path = install("bin")
    assert find_programs(environment | {"PATH": str(path)}).etcd == (str(path / "etcd"),)
    assets = install("assets")
    environment |= {"PATH": str(path), "KUBEBUILDER_ASSETS": str(assets)}
    assert find_programs(environment).kube_apiserver == (str(assets / "kube-apiserver"),)


def test_what_the_checkout_has_built_serves_as_well(tmp_path: Path) -> None:
    combined = tmp_path / "controller-sharding" / "localcluster" / "v1" / "controlplane"
    combined.parent.mkdir(parents=True)
    combined.touch()
    found = find_programs({"HOME": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)})
    assert found.kube_apiserver == (str(combined), "kube-apiserver")


def test_a_users_test_session_shares_one(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\nfrom pathlib import Path\n"
        "pytest_plugins = ['shardsdk.testing.fixtures']\n"
        f"@pytest.fixture(scope='session')\ndef crds() -> list[Path]:\n    return [Path({str(CRDS.resolve())!r})]\n"
    )
    (tmp_path / "test_users.py").write_text(
        "def test_types(control_plane):\n"
        "    control_plane.request('GET', '/apis/sharding.timebertt.dev/v1alpha1/clusterrings')\n"
    )
    assets = tmp_path / "assets"
    assets.mkdir()
    for name, program in (("etcd", programs.etcd), ("kube-apiserver", programs.kube_apiserver)):
        (assets / name).write_text(f'#!/bin/sh\nexec {" ".join(program)} "$@"\n')
        (assets / name).chmod(0o755)
    environment = os.environ | {"KUBEBUILDER_ASSETS": str(assets), "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def processes_in(folder: str) -> list[str]:
    """Command lines that name `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if folder in line]
