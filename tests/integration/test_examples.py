"""Every example is a program that works: with a real sharder, as a process, under the rights of rbac/shard.yaml."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardsdk.process.process import ExitCode
from shardsdk.protocol.ranges import BY_LABELS, BY_RANGES
from tests.integration.assigned import WAYS, Assigned, Place, assigned
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
@pytest.mark.parametrize(
    ("example", "way"),
    [(each, way) for each in ("checksum", "plain_client") for way in WAYS] + [("kopf_operator", BY_LABELS)],
)
async def test_shards_share_the_work_hand_it_over_and_take_it_over(
    stage: Stage, tmp_path: Path, example: str, way: str
) -> None:
    more = ("--namespace", stage.namespace) if example != "plain_client" else ()
    async with assigned(stage, way) as on, programs_on(stage, tmp_path, on.account) as programs:
        one = await start(programs, on.ring, example, "one", *more)
        await stage.sharder()
        await on.settled({"one"})
        await on.create_for(3, {"one", "two"})
        await until_checksums(on)
        assert set((await on.shards_of()).values()) == {"one"}

        two = await start(programs, on.ring, example, "two", *more)
        await on.settled({"one", "two"})
        assert sorted((await on.shards_of()).values(), key=str) == ["one"] * 3 + ["two"] * 3
        await on.change("changed")
        await until_checksums(on, "changed")

        two.process.kill()
        await on.settled({"one"})
        await on.change("again")
        await until_checksums(on, "again")
        assert await one.stop() == ExitCode.OK
        lease = await stage.admin.get(LEASES, "one", stage.namespace)
        assert lease["spec"].get("holderIdentity") != "one"


@pytest.mark.timeout(600)
async def test_an_example_that_knows_labels_alone_refuses_a_ring_by_ranges_before_it_has_a_lease(
    stage: Stage, tmp_path: Path
) -> None:
    async with assigned(stage, BY_RANGES) as on, programs_on(stage, tmp_path, on.account) as programs:
        program = await start(programs, on.ring, "kopf_operator", "one", "--namespace", stage.namespace)
        assert await program.exit_code() == ExitCode.CONFIGURATION
        assert "knows them by labels alone: make the ring with assignment Labels" in log_of(program)
        assert await stage.admin.find(LEASES, "one", stage.namespace) is None


async def until_checksums(on: Assigned, value: str = "") -> None:
    """Wait until each Secret's ConfigMap has the checksum of `value`, by default of the Secret's name."""
    for place in on.secrets:
        wanted = checksum(value or place.name)
        await on.until(
            place.namespace,
            f"{place.name}-checksum",
            lambda made, wanted=wanted: made["data"]["sha256"] == wanted,  # type: ignore[misc]
            CONFIGMAPS,
        )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", WAYS)
async def test_a_stateful_shard_keeps_its_objects_over_a_restart_and_loses_them_after_its_grace(
    stage: Stage, tmp_path: Path, way: str
) -> None:
    async with assigned(stage, way) as on, programs_on(stage, tmp_path, on.account) as programs:
        for name in ("web-0", "web-1"):
            await start(programs, on.ring, "stateful", name, "--restart-grace-seconds", "60")
        await stage.sharder()
        await on.settled({"web-0", "web-1"})
        await on.create_for(3, {"web-0", "web-1"})
        await on.settled({"web-0", "web-1"})

        async with on.unmoved():
            for number, name in enumerate(("web-1", "web-0")):
                (running,) = [each for each in programs.started if each.name == name]
                assert await running.stop() == ExitCode.OK
                grace = "60" if number == 0 else "3"
                again = await start(programs, on.ring, "stateful", name, "--restart-grace-seconds", grace)
                await again.until_it_says("Shard is working")
                new = await on.place_on(name, f"new-{number}")
                await on.create(new)
                await on.until(new.namespace, f"{new.name}-seen", lambda made: True, CONFIGMAPS)

        # Scaled in: nobody comes back under the name.
        assert await programs.started[-1].stop() == ExitCode.OK
        await on.settled({"web-1"})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", WAYS)
async def test_of_elected_shards_one_leads_and_all_share(stage: Stage, tmp_path: Path, way: str) -> None:
    async with assigned(stage, way) as on, programs_on(stage, tmp_path, on.account) as programs:
        more = ["--namespace", stage.namespace]
        for namespace in on.namespaces:
            more += ["--watch-namespace", namespace]
            await stage.admin.create(CONFIGMAPS, {"metadata": {"name": "secrets-count"}}, namespace)
        replicas = {name: await start(programs, on.ring, "elected", name, *more) for name in ("one", "two")}
        await stage.sharder()
        await on.settled({"one", "two"})
        await on.create_for(2, replicas)
        await on.settled({"one", "two"})
        assert set((await on.shards_of()).values()) == {"one", "two"}
        for place in on.secrets:
            await on.until(place.namespace, f"{place.name}-seen", lambda made: True, CONFIGMAPS)
        await until_counted(on)

        election = await stage.admin.get(LEASES, "elected", stage.namespace)
        leader = next(
            each for each in replicas if f"Acquired the lease {stage.namespace}/elected" in log_of(replicas[each])
        )
        replicas.pop(leader).process.kill()
        await on.create(Place(on.namespaces[0], "late"))
        await until_counted(on)
        for _ in range(2):  # of some namespace by ranges, and all but one by labels, nothing is left
            gone = on.secrets.pop()
            await stage.admin.delete(SECRETS, gone.name, gone.namespace)
            await on.until(gone.namespace, "secrets-count", has_count(on, gone.namespace), CONFIGMAPS)
        after = await stage.admin.get(LEASES, "elected", stage.namespace)
        assert after["spec"]["holderIdentity"] != election["spec"]["holderIdentity"]
        (other,) = replicas
        await on.settled({other})
        assert await replicas[other].stop() == ExitCode.OK


async def until_counted(on: Assigned) -> None:
    """Wait until each namespace's Secrets are counted in it."""
    for namespace in {place.namespace for place in on.secrets}:
        await on.until(namespace, "secrets-count", has_count(on, namespace), CONFIGMAPS)


def has_count(on: Assigned, namespace: str) -> Callable[[dict[str, Any]], bool]:
    count = str(sum(place.namespace == namespace for place in on.secrets))
    return lambda made: made.get("data", {}).get("secrets") == count


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
        await program.suspend()
        await create_secret(stage, "second", "b", labels={shard: "one"})
        await stage.admin.patch(LEASES, "one", TAKEN, stage.namespace)
        await asyncio.sleep(5.5)  # longer than its lease
        program.send(signal.SIGCONT)
        assert await program.exit_code() == ExitCode.LEASE_LOST
        assert await stage.admin.find(CONFIGMAPS, "second-checksum", stage.namespace) is None
