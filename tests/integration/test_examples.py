"""Every example is a program that works: with a real sharder, as a process, under the rights of rbac/shard.yaml."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import signal
from pathlib import Path
from typing import Any

import pytest

from shardsdk.process.process import ExitCode
from tests.integration.harness import Stage
from tests.integration.programs import TAKEN, Program, Programs, programs_on
from tests.integration.world import Ring

SECRETS = "v1/secrets"
CONFIGMAPS = "v1/configmaps"
LEASES = "coordination.k8s.io/v1/leases"
#: Long enough for a machine that is busy with something else, short enough to wait for its end.
LEASE_SECONDS = ("--lease-seconds", "5")


async def start(programs: Programs, ring: Ring, example: str, name: str, *arguments: str) -> Program:
    options = ("--ring", ring.name, "--name", name, *LEASE_SECONDS, *arguments)
    return await programs.start(name, "-m", f"examples.{example}", *options)


async def create_secret(stage: Stage, name: str, value: str, **metadata: Any) -> None:
    data = {"key": base64.b64encode(value.encode()).decode()}
    await stage.admin.create(SECRETS, {"metadata": {"name": name, **metadata}, "data": data}, stage.namespace)


def checksum(value: str) -> str:
    return hashlib.sha256(b"key\0" + value.encode() + b"\0").hexdigest()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", ["checksum", "plain_client", "kopf_operator"])
async def test_shards_share_the_work_hand_it_over_and_take_it_over(stage: Stage, tmp_path: Path, example: str) -> None:
    ring = await stage.ring()
    more = ("--namespace", stage.namespace) if example != "plain_client" else ()
    async with programs_on(stage, tmp_path) as programs:
        one = await start(programs, ring, example, "one", *more)
        await stage.sharder()
        await ring.in_place({"one"}, timeout=60)
        places = ring.pick_names(3, {"one", "two"})
        for name in places:
            await create_secret(stage, name, name)

        async def until_done(value: str = "") -> None:
            for name in places:
                await until_checksum(ring, f"{name}-checksum", checksum(value or name))

        await until_done()
        two = await start(programs, ring, example, "two", *more)
        await ring.in_place({"one", "two"}, timeout=60)
        assert await ring.shards_of() == places
        await change(stage, places, "changed")
        await until_done("changed")

        two.process.kill()
        await ring.in_place({"one"}, timeout=60)
        await change(stage, places, "again")
        await until_done("again")
        assert await one.stop() == ExitCode.OK
        lease = await stage.admin.get(LEASES, "one", stage.namespace)
        assert lease["spec"].get("holderIdentity") != "one"


async def until_checksum(ring: Ring, name: str, wanted: str) -> None:
    await ring.until(name, lambda made: made["data"]["sha256"] == wanted, CONFIGMAPS)


async def change(stage: Stage, names: dict[str, str], value: str) -> None:
    for name in names:
        await stage.admin.patch(SECRETS, name, {"stringData": {"key": value}}, stage.namespace)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_stateful_shard_keeps_its_objects_over_a_restart_and_loses_them_after_its_grace(
    stage: Stage, tmp_path: Path
) -> None:
    ring = await stage.ring()
    async with programs_on(stage, tmp_path) as programs:
        for name in ("web-0", "web-1"):
            await start(programs, ring, "stateful", name, "--restart-grace-seconds", "60")
        await stage.sharder()
        await ring.in_place({"web-0", "web-1"}, timeout=60)
        places = ring.pick_names(3, {"web-0", "web-1"})
        for name in places:
            await create_secret(stage, name, name)
        await ring.in_place({"web-0", "web-1"})

        async with ring.history() as history:
            for number, name in enumerate(("web-1", "web-0")):
                (running,) = [each for each in programs.started if each.name == name]
                assert await running.stop() == ExitCode.OK
                grace = "60" if number == 0 else "3"
                again = await start(programs, ring, "stateful", name, "--restart-grace-seconds", grace)
                await again.until_it_says("Shard is working")
                await create_secret(stage, f"new-{number}", "new")
                await ring.until(f"new-{number}-seen", lambda made: True, CONFIGMAPS)
        assert {name: history.of(name) for name in places} == {name: [shard] for name, shard in places.items()}

        # Scaled in: nobody comes back under the name.
        assert await programs.started[-1].stop() == ExitCode.OK
        await ring.in_place({"web-1"}, timeout=60)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_of_elected_shards_one_leads_and_all_share(stage: Stage, tmp_path: Path) -> None:
    ring = await stage.ring()
    more = ("--namespace", stage.namespace, "--watch-namespace", stage.namespace)
    async with programs_on(stage, tmp_path) as programs:
        replicas = {name: await start(programs, ring, "elected", name, *more) for name in ("one", "two")}
        await stage.sharder()
        await ring.in_place({"one", "two"}, timeout=60)
        places = ring.pick_names(2, replicas)
        for name in places:
            await create_secret(stage, name, name)
        await ring.in_place({"one", "two"})
        for name, shard in places.items():
            made = await ring.until(f"{name}-seen", lambda made: True, CONFIGMAPS)
            assert ring.shard_of(made) == shard
        await ring.until("secrets-count", lambda made: made["data"]["secrets"] == "4", CONFIGMAPS)

        election = await stage.admin.get(LEASES, "elected", stage.namespace)
        leader = next(
            each for each in replicas if f"Acquired the lease {stage.namespace}/elected" in log_of(replicas[each])
        )
        replicas.pop(leader).process.kill()
        await create_secret(stage, "late", "late")
        await ring.until("secrets-count", lambda made: made["data"]["secrets"] == "5", CONFIGMAPS, timeout=60)
        after = await stage.admin.get(LEASES, "elected", stage.namespace)
        assert after["spec"]["holderIdentity"] != election["spec"]["holderIdentity"]
        (other,) = replicas
        await ring.in_place({other}, timeout=60)
        assert await replicas[other].stop() == ExitCode.OK


def log_of(program: Program) -> str:
    return program.log.read_text()


@pytest.mark.timeout(600)
async def test_a_plain_client_that_slept_longer_than_its_lease_writes_nothing_when_it_wakes(
    stage: Stage, tmp_path: Path
) -> None:
    ring = await stage.ring()
    shard, _ = ring.labels
    async with programs_on(stage, tmp_path) as programs:
        program = await start(programs, ring, "plain_client", "one")
        await create_secret(stage, "first", "a", labels={shard: "one"})
        await ring.until("first-checksum", lambda made: True, CONFIGMAPS)
        program.send(signal.SIGSTOP)
        await create_secret(stage, "second", "b", labels={shard: "one"})
        await stage.admin.patch(LEASES, "one", TAKEN, stage.namespace)
        await asyncio.sleep(5.5)  # longer than its lease
        program.send(signal.SIGCONT)
        assert await program.exit_code() == ExitCode.LEASE_LOST
        assert await stage.admin.find(CONFIGMAPS, "second-checksum", stage.namespace) is None
