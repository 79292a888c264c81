"""Two API servers of one etcd behind one address, one that filters watches by range and one that does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from localcluster import Component, ControlPlane
from shardsdk.process.process import ExitCode
from tests.chaos.proxy import Proxy
from tests.integration.sdk_ring import NAMES, TEAMS, Ranged, ranged, set_up

#: Between two moves of somebody's connections, at least and at most.
PACE_SECONDS = (0.05, 0.4)
#: Of leases that outlive an API server which takes its time to come back.
LONG_LEASE_SECONDS = 120


@dataclass
class Networks:
    """What each process reaches the API servers by; its new connections go to one after the other."""

    filters: int
    ignores: int
    folder: Path
    rng: Random = field(default_factory=lambda: Random(7))
    exits: AsyncExitStack = field(default_factory=AsyncExitStack)
    proxies: dict[str, Proxy] = field(default_factory=dict)

    async def connect(self, name: str, kubeconfig: Path) -> Path:
        """A network for the process of this name, and a kubeconfig by it."""
        proxy = Proxy((self.filters, self.ignores), self.rng)
        self.proxies[name] = await self.exits.enter_async_context(proxy)
        return behind(proxy.port, kubeconfig, self.folder / f"{name}.kubeconfig")

    async def keep_moving(self) -> None:
        """End the connections of one process after the other, until cancelled: the next land anywhere."""
        while True:
            self.rng.choice(list(self.proxies.values())).drop_all()
            await asyncio.sleep(self.rng.uniform(*PACE_SECONDS))

    def pin(self, name: str, *ports: int) -> None:
        """From now on, connections of this process go there alone."""
        self.proxies[name].upstreams = ports
        self.proxies[name].drop_all()


def behind(port: int, kubeconfig: Path, path: Path) -> Path:
    """A kubeconfig that says the same of another port."""
    config = json.loads(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path.write_text(json.dumps(config))
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filtering() -> AsyncIterator[ControlPlane]:
    async with set_up({"ShardedListAndWatch": True}) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ignoring(filtering: ControlPlane) -> Component:
    return await filtering.add_apiserver(["--feature-gates=ShardedListAndWatch=false"])


@pytest_asyncio.fixture
async def networks(filtering: ControlPlane, ignoring: Component, tmp_path: Path) -> AsyncIterator[Networks]:
    ports = [int(each.url.rpartition(":")[2]) for each in (filtering.apiserver, ignoring)]
    made = Networks(ports[0], ports[1], tmp_path)
    async with made.exits:
        yield made


@pytest.mark.timeout(400)
async def test_connections_that_move_between_servers_that_filter_and_not_lose_nothing(
    filtering: ControlPlane, networks: Networks
) -> None:
    async with ranged(filtering, "mixed-servers", networks.connect) as on:
        await on.start("a", "b", "c")
        await on.until_all_by("a", "b", "c")
        moving = asyncio.create_task(networks.keep_moving())
        for team in TEAMS:
            await on.admin.create("v1/secrets", {"metadata": {"name": "brief"}}, team)
            await on.admin.create("v1/secrets", {"metadata": {"name": "late"}}, team)
        await on.start("d")
        while not on.chronicle.worked.get("d"):
            await on.touch()
        for team in TEAMS:
            await on.admin.delete("v1/secrets", "brief", team)
        assert await on.shards["b"].stop() is ExitCode.OK
        await on.touch()
        moving.cancel()
        await on.shards["c"].crash()
        await on.touch()
        await on.until_all_by("a", "d")
        assert await on.children() == {(team, name): 1 for team in TEAMS for name in (*NAMES, "late")}
        await until_they_know_what_is_theirs(on, "a", "d")
        for team in TEAMS:
            await on.admin.delete("v1/secrets", "late", team)


@pytest.mark.timeout(300)
async def test_shards_whose_watches_are_too_old_find_out_what_has_changed_and_give_away_what_they_must(
    filtering: ControlPlane, ignoring: Component, networks: Networks
) -> None:
    async with ranged(filtering, "compacted", networks.connect) as on:
        networks.pin("sharder", networks.filters)
        for name in ("a", "b"):
            await on.start(name, lease_seconds=LONG_LEASE_SECONDS)
            networks.pin(name, networks.ignores)
        await on.until_all_by("a", "b")
        await ignoring.kill()
        # All of this they miss: changes, a secret that comes, and that another shard has come.
        await on.touch()
        await on.admin.create("v1/secrets", {"metadata": {"name": "late"}}, TEAMS[0])
        await on.start("c", lease_seconds=LONG_LEASE_SECONDS)
        networks.pin("c", networks.filters)
        await until_revoked(on)
        await filtering.compact()
        await ignoring.start()

        await on.until_all_by("a", "b", "c")
        await until_they_know_what_is_theirs(on, "a", "b", "c")
        assert await on.children() == {(team, name): 1 for team in TEAMS for name in NAMES} | {(TEAMS[0], "late"): 1}
        await on.admin.delete("v1/secrets", "late", TEAMS[0])


async def until_revoked(on: Ranged) -> None:
    """Wait until something is taken from a shard that has not heard of it."""
    async with asyncio.timeout(60):
        while not (await on.assignment()).nobodys:
            await asyncio.sleep(0.05)


async def until_they_know_what_is_theirs(on: Ranged, *names: str) -> None:
    """Wait until each secret is in the cache of one of these, and nothing else is in any."""
    async with asyncio.timeout(60):
        while True:
            there = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in await secrets(on)}
            known = [key for name in names for key in on.shards[name].knows() if key[0] in TEAMS]
            if sorted(known) == sorted(there):
                return
            await asyncio.sleep(0.1)


async def secrets(on: Ranged) -> list[dict[str, dict[str, str]]]:
    return [each for each in await on.admin.list("v1/secrets") if each["metadata"]["namespace"] in TEAMS]


@pytest.mark.timeout(300)
async def test_each_shard_tells_whether_the_servers_that_it_has_landed_on_filter(
    filtering: ControlPlane, networks: Networks
) -> None:
    async with ranged(filtering, "told-filtering", networks.connect) as on:
        await on.start("a", "b")
        await on.until_all_by("a", "b")
        for turn in (("a", "b"), ("b", "a")):
            networks.pin(turn[0], networks.filters)
            networks.pin(turn[1], networks.ignores)
            await until_told(on, {turn[0]: 1.0, turn[1]: 0.0})
            await on.touch()
            await on.until_all_by("a", "b")
            assert on.shards[turn[0]].told_filtering() == 1.0, "also after everybody's objects have changed"
            assert on.shards[turn[1]].told_filtering() == 0.0


async def until_told(on: Ranged, wanted: dict[str, float]) -> None:
    """Change objects until shards tell this."""
    async with asyncio.timeout(60):
        while {name: on.shards[name].told_filtering() for name in wanted} != wanted:
            await on.touch()
