"""A sharder that is started as the Go sharder is, with its file, and shards that know nothing but the wire contract."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest_asyncio
import yaml

from localcluster import AdminClient, ControlPlane
from localcluster.installation import ROOT, START_SECONDS, STOP_SECONDS
from localcluster.ports import LOOPBACK, reserve_port
from localcluster.process import Supervisor
from tests.integration.harness import SYSTEM, Stage
from tests.integration.processes import eventually, write_pair
from tests.integration.scripted import Script
from tests.integration.test_leases import chronicle, times
from tests.integration.test_takeover import taken_under_hold
from tests.integration.world import WEBHOOKS

GO_CONFIG: Final = ROOT / "tests" / "vectors" / "sharderconfig-go.yaml"
CONFIGMAPS: Final = "v1/configmaps"
LEASES: Final = "coordination.k8s.io/v1/leases"
GO: Final = Script(lease_seconds=4, renew_seconds=0.4, go_like=True)
DURATION: Final = timedelta(seconds=GO.lease_seconds)


@dataclass
class GoStyle:
    """The process, and what was in its file."""

    supervisor: Supervisor
    config: dict[str, Any]

    @property
    def log(self) -> str:
        return self.supervisor.log("sharder").read_text()

    async def ready(self) -> None:
        url = f"http://{self.config['health']['bindAddress']}/readyz"

        async def answers() -> bool:
            if self.supervisor.exit_code("sharder") is not None:
                raise self.supervisor.failure("sharder", "has ended")
            try:
                async with aiohttp.ClientSession() as session, session.get(url) as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await eventually(answers, START_SECONDS)

    async def stop(self) -> int | None:
        from signal import SIGTERM

        self.supervisor.signal("sharder", SIGTERM)
        await self.supervisor.ended("sharder", STOP_SECONDS)
        return self.supervisor.exit_code("sharder")


@asynccontextmanager
async def started_as_the_go_sharder(plane: ControlPlane, folder: Path) -> AsyncIterator[GoStyle]:
    """`--config` and $KUBECONFIG, nothing else; of the file only ports and folders are this machine's."""
    config = yaml.safe_load(GO_CONFIG.read_text())
    ports = [reserve_port() for _ in range(3)]
    health, metrics, webhook = (port.number for port in ports)
    config["health"]["bindAddress"] = f"{LOOPBACK}:{health}"
    config["metrics"]["bindAddress"] = f"{LOOPBACK}:{metrics}"
    server = config["webhook"]["server"]
    server["port"], server["certDir"] = webhook, str(folder)
    write_pair(folder, server["certName"], server["keyName"])
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    kubeconfig = await plane.service_account_kubeconfig(SYSTEM, "sharder")
    supervisor = Supervisor()
    try:
        env = {"HOME": str(folder), "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig)}
        supervisor.start("sharder", [sys.executable, "-m", "sharder", "--config", str(path)], env)
        yield GoStyle(supervisor, config)
    finally:
        supervisor.close()
        for port in ports:
            port.release()


@pytest_asyncio.fixture
async def home(admin: AdminClient) -> str:
    """The namespace that the file names; it stays, since the end of one takes longer than the next test's start."""
    name: str = yaml.safe_load(GO_CONFIG.read_text())["leaderElection"]["resourceNamespace"]
    if await admin.find("v1/namespaces", name) is None:
        await admin.namespace(name)
    await admin.delete(LEASES, "the-sharder", name)
    return name


async def test_with_a_go_sharders_file_objects_are_placed_for_shards_that_only_follow_the_wire_contract(
    stage: Stage, home: str, tmp_path: Path
) -> None:
    ring = await stage.ring()
    async with started_as_the_go_sharder(stage.plane, tmp_path) as sharder:
        one, two, three = [await stage.shard(ring, name, script=GO) for name in ("one", "two", "three")]
        await sharder.ready()
        lease = await stage.admin.get(LEASES, "the-sharder", home)
        assert lease["spec"]["holderIdentity"]
        assert lease["spec"]["leaseDurationSeconds"] == 30
        await ring.create_families(6, ["one", "two", "three", "joins"])
        await ring.in_place(["one", "two", "three"])

        async with chronicle(stage, ring) as seen:
            await stage.shard(ring, "joins", script=GO)
            await ring.in_place(["one", "two", "three", "joins"])
            await seen.caught_up()
            assert all(after.resource == CONFIGMAPS for _, after in seen.moves()), "owners went by acknowledgement"
            assert one.acknowledged + two.acknowledged + three.acknowledged

            await one.release()
            await ring.in_place(["two", "three", "joins"])
            await seen.caught_up()
            taken_under_hold(seen, "one")

            await two.crash()
            await seen.until(lambda: any(each.ours for each in seen.lease("two")))
            await ring.in_place()
            await seen.caught_up()
            taken_under_hold(seen, "two")
            renewed = max(times(each)[1] for each in seen.lease("two") if each.holder == "two")
            taken = next(each for each in seen.lease("two") if each.ours)
            assert times(taken)[0] >= renewed + 2 * DURATION, "without a fence it gets two durations"
        assert await sharder.stop() == 0
        _tells_what_has_no_effect(sharder.log)
        released = await stage.admin.get(LEASES, "the-sharder", home)
        assert not released["spec"].get("holderIdentity")


def _tells_what_has_no_effect(log: str) -> None:
    told = [line for line in log.splitlines() if "setting has no effect" in line]
    for setting in ("clientConnection.kubeconfig", "clientConnection.contentType", "debugging.enableProfiling"):
        assert any(setting in line for line in told)


async def test_the_webhook_configuration_is_as_the_file_says_and_leaves_the_ca_to_who_injects_it(
    stage: Stage, home: str, tmp_path: Path
) -> None:
    ring = await stage.ring()
    async with started_as_the_go_sharder(stage.plane, tmp_path) as sharder:
        await sharder.ready()
        made = await _configuration(stage, lambda each: True)
        assert made["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == "my-sharding/webhook-server"
        (webhook,) = made["webhooks"]
        path = f"/webhooks/sharder/clusterring/{ring.name}"
        service = {"namespace": "my-sharding", "name": "the-sharder", "port": 8443, "path": path}
        assert webhook["clientConfig"] == {"service": service}

        bundle = "LS0tLS1CRUdJTg=="
        injected = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]
        await stage.admin.patch(
            WEBHOOKS, made["metadata"]["name"], injected, content_type="application/json-patch+json"
        )
        await ring.update({"resources": [{"group": "", "resource": "secrets"}]})
        changed = await _configuration(stage, lambda each: each["webhooks"][0]["rules"] != webhook["rules"])
        assert changed["webhooks"][0]["clientConfig"] == {"service": service, "caBundle": bundle}


async def _configuration(stage: Stage, wanted: Any) -> dict[str, Any]:
    name = f"clusterring-{stage.rings[0].name}"

    def look(found: list[dict[str, Any]]) -> dict[str, Any] | None:
        return next((each for each in found if each["metadata"]["name"] == name and wanted(each)), None)

    return await stage.admin.eventually(WEBHOOKS, look)
