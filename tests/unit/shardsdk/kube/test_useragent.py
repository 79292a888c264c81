"""As what programs and shards introduce themselves to API servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardsdk import Manager, ShardLease
from shardsdk.contrib.kopf_relay import Relay
from shardsdk.errors import ConfigurationError
from shardsdk.kube.client import Client
from shardsdk.kube.server import Access, direct_access
from shardsdk.kube.useragent import agent_of
from shardsdk.process.process import ExitCode
from shardsdk.process.world import load_world
from shardsdk.protocol.objects import LEASES
from shardsdk.queueing.metrics import Metrics
from shardsdk.version import SDK_AGENT
from tests.kube_configs import kubeconfig
from tests.kube_server import Server, says, serving
from tests.unit.shardsdk.operator.websites import websites

LEASE = {"metadata": {"name": "checksum-0", "namespace": "team"}}
SHARD = "(ring checksum; shard checksum-0)"


def agents(server: Server) -> list[str]:
    return [seen.headers["User-Agent"] for seen in server.seen]


async def ask(client: Client) -> None:
    async with client:
        await client.get(LEASES, "checksum-0", "team")


async def test_who_says_nothing_is_the_sdk_and_who_says_something_is_that() -> None:
    async with serving(says(LEASE), says(LEASE), says(LEASE)) as server:
        access = direct_access(server.url)
        await ask(Client(access))
        await ask(Client(access.of_program("checksum/1.4")))
        await ask(Client(access.of_program("checksum/1.4"), user_agent="mine/1"))
        assert agents(server) == [SDK_AGENT, f"checksum/1.4 {SDK_AGENT}", "mine/1"]


async def test_every_client_of_a_shard_says_which_it_is() -> None:
    async with serving(says(LEASE), says(LEASE), says(LEASE)) as server:
        access = direct_access(server.url).of_program("checksum/1.4")
        lease = ShardLease(access, "checksum", "checksum-0", "team")
        client = lease.client()
        await ask(client)
        async with lease._connect() as keepers:
            await keepers.get(LEASES, "checksum-0", "team")
        async with Relay(client.access) as relay, await relay.request("GET", f"{server.url}/x"):
            pass
        assert agents(server) == [f"checksum/1.4 {SDK_AGENT} {SHARD}"] * 3
        assert access.user_agent == f"checksum/1.4 {SDK_AGENT}", "others may share it"


def test_a_writes_field_manager_is_the_same_for_all_shards() -> None:
    access = direct_access("http://127.0.0.1:1").of_program("checksum/1.4")
    shards = [access.of_shard("checksum", f"checksum-{number}").user_agent for number in range(2)]
    assert len(set(shards)) == 2
    assert {each.split("/")[0] for each in shards} == {"checksum"}


async def test_a_manager_tells_all_its_clients_the_programs_name(tmp_path: Path) -> None:
    manager = Manager("checksum", shard="checksum-0", program="checksum/1.4", kubeconfig=kubeconfig(tmp_path, {}))
    world = await load_world(manager.kubeconfig, None, Metrics(), manager.program)
    assert isinstance(world.source, Access)
    assert world.source.user_agent == f"checksum/1.4 {SDK_AGENT}"
    async with world.client() as client:
        assert isinstance(client, Client)
        assert client.access.user_agent == world.source.user_agent


def test_an_operator_goes_by_its_name_unless_told_otherwise() -> None:
    assert websites().manager().program == "websites"
    assert agent_of("websites") == f"websites/unknown {SDK_AGENT}"
    assert websites().manager(program="sites/2").program == "sites/2"


@pytest.mark.parametrize("program", ["my operator", "a/1/2", "/1", "a/", "a\r\nX: 1", "å/1", "a" * 129])
async def test_what_can_stand_in_no_header_is_refused_with_what_to_write(tmp_path: Path, program: str) -> None:
    with pytest.raises(ConfigurationError, match="write NAME/VERSION"):
        agent_of(program)
    manager = Manager("checksum", namespace="team", program=program, kubeconfig=kubeconfig(tmp_path, {}))
    assert await manager.run_async() is ExitCode.CONFIGURATION
