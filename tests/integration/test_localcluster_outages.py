"""API server and etcd can be killed, paused and restarted; nothing of them outlives its owner."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from localcluster import AdminError, ComponentFailed, ControlPlane
from localcluster.ports import LOOPBACK
from localcluster.process import sweep
from tests.integration.programs import until_suspended

#: For what takes milliseconds, on a machine that is busy with other things.
PATIENCE_SECONDS = 120.0

#: Starts a control plane and a process on it, says where and which processes, and waits to be killed.
_OWNER = """
import asyncio, json, sys
from localcluster import ControlPlane
from localcluster.installation import Installation

async def main():
    plane = ControlPlane()
    await plane.start()
    components = [plane.etcd, plane.apiserver, plane.controller_manager]
    async with Installation(plane) as installation:
        sharder = await installation.start_sharder("sharder", wait=False)
        pids = [each.pid for each in [*components, sharder.process]]
        told = {"folder": str(plane.folder), "supervisor": plane.supervisor_pid, "pids": pids}
        print(json.dumps({**told, "url": plane.url}), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def breakable() -> AsyncIterator[ControlPlane]:
    """A control plane that these tests break and mend again."""
    async with ControlPlane() as plane:
        yield plane


async def test_a_killed_api_server_comes_back_under_its_address_with_its_objects(breakable: ControlPlane) -> None:
    url = breakable.url
    async with breakable.admin() as admin:
        await admin.namespace("kept-by-etcd")
        await breakable.apiserver.kill()
        assert not breakable.apiserver.running
        await breakable.apiserver.restart()
        assert breakable.url == url
        await admin.get("v1/namespaces", "kept-by-etcd")


async def test_a_paused_api_server_is_silent_until_it_is_resumed(breakable: ControlPlane) -> None:
    async with breakable.admin() as admin:
        breakable.apiserver.pause()
        await until_suspended(breakable.apiserver.pid)
        request = asyncio.create_task(admin.get("v1/namespaces", "default"))
        done, _ = await asyncio.wait([request], timeout=0.5)
        assert not done
        assert breakable.apiserver.running
        breakable.apiserver.resume()
        assert (await request)["metadata"]["name"] == "default"


async def test_waiting_for_a_change_survives_the_api_servers_restart(breakable: ControlPlane) -> None:
    async with breakable.admin() as admin:
        waiting = asyncio.create_task(
            admin.eventually("v1/configmaps", lambda found: len(found) == 1, "default", labels="made=later")
        )
        await breakable.apiserver.restart()
        await admin.create("v1/configmaps", {"metadata": {"generateName": "x", "labels": {"made": "later"}}}, "default")
        assert await waiting


async def test_etcd_comes_back_with_its_data_even_when_killed(breakable: ControlPlane) -> None:
    async with breakable.admin() as admin:
        await admin.namespace("written-before")
        await breakable.etcd.restart()
        await breakable.apiserver.ready()
        await admin.get("v1/namespaces", "written-before")


async def test_the_controller_manager_goes_on_after_an_outage(breakable: ControlPlane) -> None:
    await breakable.apiserver.restart()
    async with breakable.admin() as admin:
        await admin.namespace("after-the-outage")
        # The longer the outage was, the longer it pauses before it looks again: up to a minute.
        await admin.eventually("v1/serviceaccounts", bool, "after-the-outage", timeout_seconds=PATIENCE_SECONDS)
    assert breakable.controller_manager.running


async def test_a_write_at_one_api_server_is_read_at_another(breakable: ControlPlane) -> None:
    second = await breakable.add_apiserver()
    async with breakable.admin() as here, breakable.admin(second) as there:
        await here.namespace("seen-by-both")
        await there.get("v1/namespaces", "seen-by-both")
    await second.kill()


async def test_after_compaction_and_restart_an_old_watch_is_gone(breakable: ControlPlane) -> None:
    async with breakable.admin() as admin:
        made = await admin.namespace("history")
        for value in ("1", "2"):
            await admin.patch("v1/namespaces", "history", {"metadata": {"labels": {"step": value}}})
        await breakable.compact()
        await breakable.apiserver.restart()
        query = {"watch": "1", "resourceVersion": made["metadata"]["resourceVersion"], "timeoutSeconds": "30"}
        try:
            answer = json.dumps(await admin.request("GET", "/api/v1/namespaces", query=query))
        except AdminError as error:
            answer = str(error)
        assert "too old resource version" in answer


@pytest.mark.parametrize(
    ("plane", "component", "said"),
    [
        (ControlPlane(apiserver_extra=["--no-such-flag"]), "kube-apiserver", "unknown flag: --no-such-flag"),
        (ControlPlane(controllers=["no-such"]), "kube-controller-manager", "is not in the list of known controllers"),
    ],
    ids=["API server", "controller manager"],
)
async def test_a_component_that_cannot_start_names_its_log_and_leaves_no_process(
    plane: ControlPlane, component: str, said: str
) -> None:
    with pytest.raises(ComponentFailed, match=said) as raised:
        await plane.start()
    try:
        log = plane.logs / f"{component}.log"
        assert str(log) in str(raised.value)
        assert log.exists()
        assert not _alive(plane.etcd.pid)
        assert {entry.name for entry in plane.folder.iterdir()} == {"logs"}
    finally:
        shutil.rmtree(plane.folder)


async def test_a_port_that_someone_else_takes_first_is_given_up_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    from localcluster import control_plane as module
    from localcluster.ports import ReservedPort, reserve_port

    with socket.create_server((LOOPBACK, 0)) as occupied:
        taken = ReservedPort(occupied.getsockname()[1], None)
        answers = iter([reserve_port(), taken])
        monkeypatch.setattr(module, "reserve_port", lambda: next(answers, None) or reserve_port())
        async with ControlPlane(controllers=()) as plane:
            assert not plane.url.endswith(f":{taken.number}")


@pytest.mark.parametrize("victims", [["owner"], ["supervisor", "owner"]], ids=" and ".join)
def test_nothing_outlives_an_owner_that_is_killed(
    victims: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever starts a control plane beside this test sweeps as well, and would be the first to find the folder.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _OWNER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout is not None
        told = json.loads(owner.stdout.readline())
        folder, pids = Path(told["folder"]), [told["supervisor"], *told["pids"]]
        assert all(map(_alive, pids))
        for victim in victims:
            os.kill({"owner": owner.pid, "supervisor": told["supervisor"]}[victim], signal.SIGKILL)

    _wait_until(lambda: not any(map(_alive, pids)))
    if "supervisor" in victims:
        # Nobody was left to delete the folder: the next control plane does.
        assert folder.exists()
        sweep()
    _wait_until(lambda: not folder.exists())
    # A killed process gives its port back a moment after it has turned into a zombie.
    _wait_until(lambda: _is_free(int(told["url"].rpartition(":")[2])))


async def test_a_sweep_spares_what_is_running(breakable: ControlPlane) -> None:
    sweep()
    assert breakable.admin_kubeconfig.exists()


def test_the_shell_gets_a_control_plane_that_stays_until_it_is_taken_down() -> None:
    name = f"test_{os.getpid()}"
    command = [sys.executable, "-m", "localcluster"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)

    assert run("status", "--name", name).returncode == 1
    up = run("up", "--name", name, "--feature-gates", "ShardedListAndWatch=true")
    try:
        assert up.returncode == 0, up.stderr
        variable, _, kubeconfig = up.stdout.strip().partition("=")
        assert variable == "export KUBECONFIG"
        assert run("up", "--name", name).stdout == up.stdout, "the second `up` finds the first one's"
        assert run("status", "--name", name).returncode == 0
        metrics = run("kubectl", "--name", name, "get", "--raw", "/metrics").stdout
        assert 'kubernetes_feature_enabled{name="ShardedListAndWatch",stage="ALPHA"} 1' in metrics
    finally:
        down = run("down", "--name", name)
    assert down.returncode == 0, down.stderr
    assert not Path(kubeconfig).parent.exists()
    assert run("status", "--name", name).returncode == 1
    assert run("down", "--name", name).returncode == 0, "`down` is harmless when nothing runs"


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def _is_free(port: int) -> bool:
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError:
        return False
    return True


def _alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    # A zombie has ended; whoever inherits it reaps it.
    return status.rpartition(")")[2].split()[0] != "Z"
