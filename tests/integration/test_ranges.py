"""A ring by ranges on a real control plane, under the sharder's own rights: it cannot read what it shares out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from tests.integration.harness import REPOSITORY, SYSTEM, Stage, set_stage
from tests.integration.plugin import Plugin
from tests.integration.ranged_shard import ASSIGNMENTS, EVERYTHING, RangedShard, Workers, meet, named, point_of
from tests.integration.scripted import Object, ScriptedShard
from tests.integration.world import LONE_SECRETS, RINGS, WEBHOOKS, Ring

NAMESPACES = "v1/namespaces"
TEAMS = [f"team-{number}" for number in range(24)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    """A control plane of its own: on the shared one other tests let the sharder read Secrets."""
    async with ControlPlane() as plane:
        await plane.apply(REPOSITORY / "crds", REPOSITORY / "rbac" / "sharder.yaml")
        async with plane.admin() as admin:
            for name in TEAMS:
                await admin.create(NAMESPACES, {"metadata": {"name": name}})
                await admin.create("v1/secrets", {"metadata": {"name": "one"}}, name)
        yield plane


@dataclass
class Ranged:
    """A ring by ranges over all Secrets, with shards that know the contract alone."""

    stage: Stage
    ring: Ring
    workers: Workers = field(default_factory=Workers)
    shards: dict[str, RangedShard] = field(default_factory=dict)

    async def start(self, *names: str) -> None:
        """Start these shards."""
        for name in names:
            shard = RangedShard(self.stage.admin, self.ring.name, "default", name, self.workers)
            self.stage.shards.append(shard)
            self.shards[name] = shard
            await shard.start()

    async def assignment(self, holds: Callable[[Object], bool]) -> Object:
        """Wait until the RingAssignment is so."""

        def found(assignments: list[Object]) -> Object | None:
            return next(
                (each for each in assignments if each["metadata"]["name"] == self.ring.name and holds(each)), None
            )

        return await self.stage.admin.eventually(ASSIGNMENTS, found)

    async def shard_of(self, namespace: str) -> list[str]:
        """Who works on what is in `namespace`."""
        here = point_of(namespace)
        return [name for name, spans in self.workers.working.items() if meet(spans, [(here, here + 1)])]


@asynccontextmanager
async def ranged(plane: ControlPlane, admin: AdminClient, name: str, **spec: Any) -> AsyncIterator[Ranged]:
    """A ring of this name on stage; in the end no two shards may ever have met."""
    async with set_stage(plane, admin, name) as stage:
        chosen = {"assignment": "Ranges", "hashBy": "Namespace", "namespaceSelector": None, **spec}
        ring = await stage.ring(LONE_SECRETS, name=name, grant=False, shards_may=False, **chosen)
        made = Ranged(stage, ring)
        yield made
        assert not made.workers.met


@pytest_asyncio.fixture
async def own(plane: ControlPlane) -> AsyncIterator[AdminClient]:
    async with plane.admin() as admin:
        yield admin


async def may(admin: AdminClient, verb: str, resource: str) -> bool:
    user = f"system:serviceaccount:{SYSTEM}:sharder"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated"]
    return await admin.may(verb, f"v1/{resource}", user=user, groups=groups)


@pytest.mark.timeout(300)
async def test_secrets_are_shared_by_a_sharder_that_cannot_read_them(
    plane: ControlPlane, own: AdminClient, tmp_path: Path
) -> None:
    for verb in ("get", "list", "watch", "patch", "update", "delete"):
        assert not await may(own, verb, "secrets")
    before = {(each["metadata"]["namespace"], each["metadata"]["resourceVersion"]) for each in await secrets(own)}
    async with ranged(plane, own, "secret-ring") as on:
        await on.start("one", "two", "three")
        sharder = await on.stage.sharder()
        await on.workers.until_spread("one", "two", "three")
        await on.ring.condition("Ready", "True")
        assert [len(await on.shard_of(team)) for team in TEAMS] == [1] * len(TEAMS)

        written = (await on.assignment(lambda each: not named(each, None)))["metadata"]["generation"]
        said = sum(shard.said for shard in on.shards.values())
        await on.start("four")
        await on.workers.until_spread("one", "two", "three", "four")
        now = await on.assignment(lambda each: not named(each, None))
        writes = now["metadata"]["generation"] - written + sum(shard.said for shard in on.shards.values()) - said
        assert writes <= 20, "of the assignment and of what shards hold, for one more shard"
        assert {(await on.shard_of(team))[0] for team in TEAMS} == {"one", "two", "three", "four"}

        told = await on.assignment(lambda each: settled(each) and each["status"]["shards"] == 4)
        assert told["status"]["observedGeneration"] == told["metadata"]["generation"]
        assert {each["shard"] for each in told["status"]["shares"]} == {"one", "two", "three", "four"}
        await on.ring.condition("Settled", "True")

        await check_plugin(Plugin.install(tmp_path, plane), on)

        await on.shards["two"].release()
        await on.workers.until_spread("one", "three", "four")
        await on.shards["three"].crash()
        await on.workers.until_spread("one", "four")
        await on.shards["three"].start()
        await on.workers.until_spread("one", "three", "four")

        assert await own.find(WEBHOOKS, f"clusterring-{on.ring.name}") is None
        assert {
            (each["metadata"]["namespace"], each["metadata"]["resourceVersion"]) for each in await secrets(own)
        } == before, "nobody's object was touched"
        assert sharder.metric("api_requests_total", verb="list", resource="secrets") == 0


async def check_plugin(plugin: Plugin, on: Ranged) -> None:
    """What people are told of a settled ring: everything counted, explained and in order, by this API server's word."""
    name = on.ring.name
    [found] = (await plugin.sharding("status", name, "-o", "json")).data["rings"]
    assert (found["settled"], found["ready"], found["problems"]) == (True, True, [])
    counted = sum(shard["objects"]["secrets"] for shard in found["shards"])
    assert counted >= len(TEAMS)
    [mine] = (await plugin.sharding("explain", "secret", "one", "-n", TEAMS[0], "-o", "json")).data["rings"]
    assert [mine["shard"]] == await on.shard_of(TEAMS[0])
    assert mine["inPlace"]
    check = await plugin.sharding("check", name, "-o", "json")
    levels = {each["topic"]: each["level"] for each in check.data["findings"] if each["ring"] == name}
    assert levels["filtering"] == "warning", "the gate is off here"
    assert (levels["ranges"], levels["objects"], levels["permissions"]) == ("ok", "ok", "ok")
    assert "webhook" not in levels


def settled(assignment: Object) -> bool:
    """By its own word."""
    conditions = (assignment.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Settled" and each["status"] == "True" for each in conditions)


async def secrets(admin: AdminClient) -> list[Object]:
    return [each for each in await admin.list("v1/secrets") if each["metadata"]["namespace"] in TEAMS]


@pytest.mark.timeout(300)
async def test_a_ring_made_again_by_ranges_loses_its_webhook_and_labels_nothing(
    plane: ControlPlane, own: AdminClient
) -> None:
    async with set_stage(plane, own, "default") as stage:
        ring = await stage.ring(LONE_SECRETS, name="made-again", shards_may=False)
        await stage.sharder()
        await own.eventually(WEBHOOKS, lambda found: f"clusterring-{ring.name}" in names(found))
        await own.delete(RINGS, ring.name)
        body = await with_ranges(own, ring.name)
        assert body["spec"]["assignment"] == "Ranges"

        await own.eventually(WEBHOOKS, lambda found: f"clusterring-{ring.name}" not in names(found))
        workers = Workers()
        shard = RangedShard(own, ring.name, "default", "alone", workers)
        stage.shards.append(shard)
        await shard.start()
        await workers.until_spread("alone")
        made = await own.create("v1/secrets", {"metadata": {"name": "later"}}, "team-1")
        assert not made["metadata"].get("labels")


@pytest.mark.timeout(300)
async def test_a_shard_that_knows_labels_alone_gets_no_range_and_everybody_is_told(
    plane: ControlPlane, own: AdminClient, tmp_path: Path
) -> None:
    async with ranged(plane, own, "labels-only") as on:
        labelled = ScriptedShard(own, on.ring.name, ("", ""), "default", "labelled", ())
        on.stage.shards.append(labelled)
        await labelled.start()
        sharder = await on.stage.sharder()
        said = await on.ring.condition("ShardsFit", "False", says="labelled")
        assert said["reason"] == "LabelsOnly"
        assert named(await on.assignment(lambda each: True), None) == EVERYTHING, "it would work on nothing"

        await on.start("one", "two")
        await on.workers.until_spread("one", "two")
        now = await on.assignment(lambda each: not named(each, None))
        assert {each["shard"] for each in now["spec"]["ranges"]} == {"one", "two"}
        assert sharder.metric("ring_condition", ringName=on.ring.name, type="ShardsFit") == 0
        assert (await on.ring.events("LabelsOnly"))["type"] == "Warning"
        check = await Plugin.install(tmp_path, plane).sharding("check", on.ring.name, "-o", "json")
        assert ("problem", True) in {
            (each["level"], "labelled" in each["message"])
            for each in check.data["findings"]
            if each["topic"] == "shards"
        }
        await labelled.release()
        await on.ring.condition("ShardsFit", "True")


def names(found: list[Object]) -> set[str]:
    return {each["metadata"]["name"] for each in found}


async def with_ranges(admin: AdminClient, name: str) -> Object:
    """The ring of this name, made anew."""
    spec = {"assignment": "Ranges", "hashBy": "Namespace", "resources": [{"resource": "secrets"}]}
    body = {
        "apiVersion": "sharding.timebertt.dev/v1alpha1",
        "kind": "ClusterRing",
        "metadata": {"name": name},
        "spec": spec,
    }
    return await admin.create(RINGS, body)
