"""Leases on a real API server, held by real processes under the rights of rbac/shard.yaml."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from shardsdk.errors import FenceClosed, LeaseLost
from shardsdk.events.recorder import EventRecorder
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.server import Access
from shardsdk.lease.election import LeaderElector
from shardsdk.lease.hold import Hold
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import FENCED_ANNOTATION, INSTANCE_ANNOTATION, LEASE_RING_LABEL, SHARDER_HOLDER
from shardsdk.protocol.leases import parse_micro_time
from tests.integration.lease_writer import CONFIGMAPS, LEASE_LOST, TIMINGS
from tests.lease_rig import stay

ROOT = Path(__file__).parents[2]
LEASES = "coordination.k8s.io/v1/leases"
RING, SHARD = "example", "shard-1"
Object = dict[str, Any]


class Stage:
    """A namespace with the ConfigMap that writers count in, and the processes of a test."""

    def __init__(self, admin: AdminClient, namespace: str, kubeconfig: Path, folder: Path) -> None:
        self.admin = admin
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.processes: list[asyncio.subprocess.Process] = []

    async def start(self, instance: str, name: str = SHARD, *more: str) -> asyncio.subprocess.Process:
        """A process in the pod of that UID, by which its writes are counted; empty: in none."""
        more = ("--counts-as", instance, *more)
        with (self.folder / f"{instance}.log").open("a") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.integration.lease_writer", "--ring", RING, "--name", name,
                "--namespace", self.namespace, "--kubeconfig", str(self.kubeconfig), *more,
                cwd=ROOT, stdout=log, stderr=log, env={**os.environ, "POD_UID": instance},
            )  # fmt: skip
        self.processes.append(process)
        return process

    async def access(self) -> Access:
        return await load_access(str(self.kubeconfig))

    async def shard(self, instance: str = "uid-0", **options: Any) -> ShardLease:
        given = {"timings": TIMINGS, **options}
        return ShardLease(await self.access(), RING, SHARD, self.namespace, instance=instance, **given)

    async def lease(self, name: str = SHARD) -> Object:
        return await self.admin.get(LEASES, name, self.namespace)

    async def writes(self, instance: str) -> int:
        found = await self.admin.get("v1/configmaps", "writes", self.namespace)
        return int((found.get("data") or {}).get(instance, 0))

    async def until_writes(self, instance: str, more_than: int = 0) -> None:
        def look(objects: list[Object]) -> bool:
            found = [each for each in objects if each["metadata"]["name"] == "writes"]
            return bool(found) and int((found[0].get("data") or {}).get(instance, 0)) > more_than

        await self.admin.eventually("v1/configmaps", look, self.namespace)

    async def until_log(self, instance: str, text: str) -> None:
        async with asyncio.timeout(40):
            while text not in (self.folder / f"{instance}.log").read_text():
                await asyncio.sleep(0.02)

    async def take(self, holder: str, duration_seconds: int) -> None:
        """What the sharder does; an empty `holder` gives back."""
        spec = {"holderIdentity": holder, "leaseDurationSeconds": duration_seconds}
        await self.admin.patch(LEASES, SHARD, {"spec": spec}, self.namespace)

    async def end(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def prepare(plane: ControlPlane, admin: AdminClient, namespace: str, folder: Path) -> Stage:
    rights = (ROOT / "rbac" / "shard.yaml").read_text()
    rights = rights.replace("namespace: default", f"namespace: {namespace}")
    await plane.apply(stdin=rights.replace("name: checksum", f"name: {namespace}-shard"))
    kubeconfig = await plane.service_account_kubeconfig(namespace, f"{namespace}-shard", folder / "kubeconfig")
    await admin.create("v1/configmaps", {"metadata": {"name": "writes"}}, namespace)
    return Stage(admin, namespace, kubeconfig, folder)


@pytest_asyncio.fixture
async def stage(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    made = await prepare(control_plane, admin, namespace, tmp_path)
    yield made
    await made.end()
    for kind in ("clusterrolebindings", "clusterroles"):
        await admin.delete(f"rbac.authorization.k8s.io/v1/{kind}", f"{namespace}-shard")


async def exit_code(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(40):
        return await process.wait()


def block(seconds: float) -> None:
    """What a reconciler does that should have been run in a thread."""
    time.sleep(seconds)


async def test_the_lease_says_what_the_contract_asks_for_and_go_shards_do(stage: Stage) -> None:
    lease = await stage.shard(timings=LeaseTimings())
    async with lease, lease.client() as client:
        await client.patch(CONFIGMAPS, "writes", stage.namespace, {"data": {"x": "1"}})
        await stage.admin.eventually(
            LEASES,
            lambda leases: [each for each in leases if FENCED_ANNOTATION in (each["metadata"]["annotations"] or {})],
            stage.namespace,
        )
        held = await stage.lease()
        assert held["metadata"]["labels"] == {LEASE_RING_LABEL: RING}
        renewed = held["spec"]["renewTime"]
        assert held["metadata"]["annotations"] == {INSTANCE_ANNOTATION: f"uid-0@{renewed}", FENCED_ANNOTATION: renewed}
        assert held["spec"]["holderIdentity"] == SHARD
        assert held["spec"]["leaseDurationSeconds"] == 15
        assert held["spec"]["leaseTransitions"] == 0
        assert parse_micro_time(held["spec"]["renewTime"])
    left = await stage.lease()
    assert left["spec"].get("holderIdentity", "") == ""
    assert left["spec"]["leaseDurationSeconds"] == 1
    assert not left["metadata"].get("annotations")


async def test_a_container_that_restarts_in_its_pod_goes_on_at_once(stage: Stage) -> None:
    first = await stage.start("uid-1")
    await stage.until_writes("uid-1", more_than=10)
    first.kill()
    await first.wait()
    held = await stage.lease()
    await stage.start("uid-1")
    await stage.admin.eventually(
        LEASES,
        lambda leases: [each for each in leases if each["spec"]["renewTime"] > held["spec"]["renewTime"]],
        stage.namespace,
    )
    renewed = await stage.lease()
    assert renewed["spec"]["leaseTransitions"] == held["spec"]["leaseTransitions"], "nobody else had it meanwhile"
    assert "Waiting" not in (stage.folder / "uid-1.log").read_text()


async def test_of_two_workers_in_one_pod_one_writes_and_the_other_once_it_is_killed(stage: Stage) -> None:
    first = await stage.start("uid-1", SHARD, "--lease-seconds", "600")
    await stage.until_writes("uid-1")
    await stage.start("uid-1", SHARD, "--lease-seconds", "600", "--counts-as", "second")
    await stage.until_log("uid-1", f"Waiting for the lease {stage.namespace}/{SHARD}")
    await stage.until_writes("uid-1", more_than=await stage.writes("uid-1") + 100)
    assert (first.returncode, await stage.writes("second")) == (None, 0)
    first.kill()
    await stage.until_writes("second")  # much sooner than the lease has run out


async def test_of_two_processes_of_one_name_only_one_writes(stage: Stage) -> None:
    first = await stage.start("uid-1")
    await stage.until_writes("uid-1")
    await stage.start("uid-2")
    await stage.until_log("uid-2", f"held by {SHARD} (instance uid-1-")
    await stage.until_writes("uid-1", more_than=await stage.writes("uid-1") + 100)
    assert await stage.writes("uid-2") == 0
    first.terminate()
    await stage.until_writes("uid-2")
    written = await stage.writes("uid-1")
    assert await exit_code(first) == 0
    await stage.until_writes("uid-2", more_than=100)
    assert await stage.writes("uid-1") == written


async def test_a_killed_process_is_succeeded_by_its_name_once_its_lease_has_run_out(stage: Stage) -> None:
    first = await stage.start("uid-1")
    await stage.until_writes("uid-1")
    first.kill()
    await first.wait()
    written = await stage.writes("uid-1")
    began = time.monotonic()
    await stage.start("uid-2")
    await stage.until_writes("uid-2")
    assert time.monotonic() - began > TIMINGS.lease_duration
    assert await stage.writes("uid-1") == written


async def test_outside_a_pod_a_killed_process_is_succeeded_at_once_because_it_is_known_to_be_dead(
    stage: Stage,
) -> None:
    first = await stage.start("", SHARD, "--lease-seconds", "600")
    await stage.admin.eventually(LEASES, bool, stage.namespace)
    held = await stage.lease()
    instance = held["metadata"]["annotations"][INSTANCE_ANNOTATION].rpartition("@")[0]
    await stage.until_writes(instance)
    twin = await stage.start("", SHARD, "--lease-seconds", "600")
    await stage.until_log("", f"held by {SHARD} (instance {instance})")
    twin.kill()
    await twin.wait()
    first.kill()
    await first.wait()
    await stage.admin.patch("v1/configmaps", "writes", {"data": None}, stage.namespace)
    await stage.start("", SHARD, "--lease-seconds", "600")
    await stage.until_writes(instance)  # much sooner than the lease has run out
    after = await stage.lease()
    assert after["spec"]["leaseTransitions"] == held["spec"]["leaseTransitions"]


async def test_a_lease_that_the_sharder_takes_ends_the_process_and_the_next_waits_for_it_back(stage: Stage) -> None:
    first = await stage.start("uid-1")
    await stage.until_writes("uid-1")
    await stage.take(SHARDER_HOLDER, 60)
    assert await exit_code(first) == LEASE_LOST
    taken = await stage.lease()
    assert taken["spec"]["holderIdentity"] == SHARDER_HOLDER
    await stage.start("uid-2")
    await stage.until_log("uid-2", f"held by {SHARDER_HOLDER}")
    assert await stage.writes("uid-2") == 0
    await stage.take("", 1)
    await stage.until_writes("uid-2")
    assert (await stage.lease())["spec"]["leaseTransitions"] == taken["spec"]["leaseTransitions"] + 1


async def test_a_process_that_slept_longer_than_its_lease_writes_nothing_when_it_wakes(stage: Stage) -> None:
    first = await stage.start("uid-1")
    await stage.until_writes("uid-1")
    first.send_signal(signal.SIGSTOP)
    await stage.start("uid-2")
    await stage.until_writes("uid-2")
    written = await stage.writes("uid-1")
    first.send_signal(signal.SIGCONT)
    assert await exit_code(first) == LEASE_LOST
    assert await stage.writes("uid-1") == written
    assert (await stage.lease())["metadata"]["annotations"][INSTANCE_ANNOTATION].startswith("uid-2-")


async def test_the_state_that_the_sharder_writes_and_a_lost_label_cost_no_lease(stage: Stage) -> None:
    async with await stage.shard() as lease:
        end = lease.fence.ends_at + 2 * TIMINGS.lease_duration
        while lease.fence.ends_at < end:
            patch = {"metadata": {"labels": {LEASE_RING_LABEL: None, "alpha.sharding.timebertt.dev/state": "ready"}}}
            await stage.admin.patch(LEASES, SHARD, patch, stage.namespace)
        assert not lease.lost.is_set()
        await stage.admin.eventually(
            LEASES,
            lambda leases: [each for each in leases if each["metadata"]["labels"].get(LEASE_RING_LABEL) == RING],
            stage.namespace,
        )


async def test_a_lease_that_is_deleted_is_made_again(stage: Stage) -> None:
    async with await stage.shard() as lease:
        before = await stage.lease()
        await stage.admin.delete(LEASES, SHARD, stage.namespace)
        await stage.admin.eventually(
            LEASES,
            lambda leases: [each for each in leases if each["metadata"]["uid"] != before["metadata"]["uid"]],
            stage.namespace,
        )
        assert not lease.lost.is_set()
        assert (await stage.lease())["metadata"]["labels"] == {LEASE_RING_LABEL: RING}


async def test_a_blocked_event_loop_keeps_its_lease(stage: Stage) -> None:
    lease = await stage.shard()
    async with lease:
        before = await stage.lease()
        block(2 * TIMINGS.lease_duration)
        assert lease.fence.remaining() > 0
        after = await stage.lease()
        assert after["spec"]["renewTime"] > before["spec"]["renewTime"]
        assert after["spec"]["acquireTime"] == before["spec"]["acquireTime"]
        assert not lease.lost.is_set()


async def test_a_restart_grace_is_honoured_by_the_next_of_the_name(stage: Stage) -> None:
    async with await stage.shard("uid-1", restart_grace_seconds=60):
        pass
    kept = await stage.lease()
    assert kept["spec"]["holderIdentity"] == SHARD
    assert kept["spec"]["leaseDurationSeconds"] == 60
    assert kept["metadata"]["annotations"][INSTANCE_ANNOTATION] == f"@{kept['spec']['renewTime']}"
    # Sooner than the grace is over, whatever the machine does besides.
    async with asyncio.timeout(50), await stage.shard("uid-2"):
        assert (await stage.lease())["spec"]["leaseDurationSeconds"] == TIMINGS.lease_duration


async def test_an_api_server_that_hangs_ends_the_work_before_the_lease_can_be_taken(
    fresh_control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with fresh_control_plane.admin() as admin:
        stage = await prepare(fresh_control_plane, admin, "default", tmp_path)
        clock = SystemClock()
        lease = await stage.shard()
        stopped = asyncio.Event()

        async def write(client: Client) -> None:
            try:
                while True:
                    await client.patch(CONFIGMAPS, "writes", stage.namespace, {"data": {"x": str(clock.monotonic())}})
            finally:
                stopped.set()

        async def work() -> None:
            async with lease, lease.client() as client, asyncio.TaskGroup() as group:
                group.create_task(write(client))
                await asyncio.sleep(0.3)
                fresh_control_plane.apiserver.pause()

        with pytest.raises(LeaseLost, match="not renewed within"):
            await work()
        # When it had to stop is shown in virtual time; here, that it did although its request hangs.
        assert stopped.is_set()
        fresh_control_plane.apiserver.resume()
        async with Client(await stage.access(), fence=lease.fence) as client:
            with pytest.raises(FenceClosed):
                await client.patch(CONFIGMAPS, "writes", stage.namespace, {"data": {"x": "late"}})


async def test_candidates_lead_one_after_the_other_and_say_so(stage: Stage, control_plane: ControlPlane) -> None:
    clock, rng = SystemClock(), random.Random()
    led: list[str] = []
    leading = asyncio.Event()

    def candidate(name: str, client: Client, recorder: EventRecorder) -> LeaderElector:
        return LeaderElector(
            client, namespace=stage.namespace, name="election", identity=name, timings=TIMINGS, clock=clock, rng=rng,
            recorder=recorder,
        )  # fmt: skip

    def lead_as(name: str) -> Any:
        async def lead(hold: Hold) -> None:
            assert hold.remaining() > 0
            led.append(name)
            leading.set()
            await asyncio.Event().wait()

        return lead

    async with Client(await stage.access()) as client:
        recorder = EventRecorder(client, "test", clock, rng)
        recording = asyncio.create_task(recorder.run())
        first = asyncio.create_task(candidate("a", client, recorder).run(lead_as("a")))
        await leading.wait()
        leading.clear()
        second = asyncio.create_task(candidate("b", client, recorder).run(lead_as("b")))
        first.cancel()
        async with asyncio.timeout(30):
            await leading.wait()
        assert led == ["a", "b"]
        spec = (await stage.lease("election"))["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 1)
        second.cancel()
        await asyncio.wait([first, second])
        await stage.admin.eventually(
            "v1/events", lambda events: [e for e in events if e["message"] == "b stopped leading"], stage.namespace
        )
        recording.cancel()
        await asyncio.wait([recording])
    shown = await control_plane.kubectl("describe", "lease", "election", "-n", stage.namespace)
    assert "LeaderElection" in shown


async def test_missing_rights_are_named_and_waited_for(
    stage: Stage, control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="shardsdk.lease")
    nobody = control_plane.kubeconfig("nobody", [])
    lease = ShardLease(await load_access(str(nobody)), RING, SHARD, stage.namespace, timings=TIMINGS)
    waiting = asyncio.create_task(stay(lease))
    async with asyncio.timeout(30):
        while not ("leases" in caplog.text and "coordination.k8s.io" in caplog.text):
            await asyncio.sleep(0.02)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert await stage.admin.find(LEASES, SHARD, stage.namespace) is None
