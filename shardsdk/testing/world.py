"""What a manager is handed instead of a cluster and a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from shardsdk.kube.api import Api, Fence
from shardsdk.lease.shardlease import ShardLease
from shardsdk.process.world import World
from shardsdk.testing.memoryapi import MemoryApi

#: Whatever POD_UID says where tests run: a seat is the machine's, and each server in memory has leases of its own.
_INSTANCE: Final = "in-memory"


def world_in(api: MemoryApi, others: list[MemoryApi], rng: Random) -> World:
    """The server and the clock of `api`, which is a shard's client; all others are added to `others`.

    Leases are renewed whatever is wrong with `api`, as a keeper's own connection may do, so that a test says by itself
    when one is lost.
    """

    @asynccontextmanager
    async def keeper() -> AsyncIterator[Api]:
        made = MemoryApi(api.server, api.clock)
        others.append(made)
        yield made

    @asynccontextmanager
    async def connect(lease: ShardLease) -> AsyncIterator[Api]:
        api.fence = lease.fence
        yield api

    @asynccontextmanager
    async def connect_other(fence: Fence | None) -> AsyncIterator[Api]:
        other = MemoryApi(api.server, api.clock, fence=fence)
        other.leases = MemoryApi(api.server, api.clock, fence=fence)
        for each in (other, other.leases):
            each.writes, each.sent, each.lists, each.on_request = api.writes, api.sent, api.lists, api.on_request
        other.served, other.way = api.served, api
        others.extend((other, other.leases))
        yield other

    return World(
        keeper, connect, api.clock, rng, threaded=False, serve=False, signals=False, die=_die, open=connect_other,
        instance=_INSTANCE,
    )  # fmt: skip


def _die(code: int, why: str) -> None:
    raise AssertionError(f"the shard's process would have been ended with {code}: {why}")
