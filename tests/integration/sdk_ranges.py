"""The SDK's shards in a ring by ranges on a real control plane, under `shardsdk rbac`, and who works on what."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from shardsdk.kube.access import load_access
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.process.world import World
from shardsdk.protocol.objects import Resource
from shardsdk.protocol.ranges import NOWHERE, HashRanges, point_of
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.spec import controller_for
from tests.integration.harness import Plug

SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
#: How often everybody's ranges are compared.
LOOK_SECONDS: Final = 0.01


@dataclass
class Chronicle:
    """Who reconciles what this moment, and as what each object was reconciled last."""

    running: dict[tuple[str, str], str] = field(default_factory=dict)
    seen: dict[tuple[str, str], str] = field(default_factory=dict)
    by: dict[tuple[str, str], str] = field(default_factory=dict)
    #: How long a reconcile takes at least.
    busy_seconds: float = 0.05
    #: Where each shard was seen to work, ever.
    worked: dict[str, HashRanges] = field(default_factory=dict)
    #: Each time that two had one object, or one range, and that one began where it does not work.
    met: list[str] = field(default_factory=list)
    shards: list[SdkShard | ContractShard] = field(default_factory=list)

    async def until_at_rest(self) -> None:
        """Wait until nobody reconciles anything."""
        while self.running:
            await asyncio.sleep(LOOK_SECONDS)

    async def watch(self) -> None:
        """Compare what shards may work on, until cancelled."""
        while True:
            before: list[SdkShard | ContractShard] = []
            for shard in self.shards:
                self.worked[shard.name] = self.worked.get(shard.name, NOWHERE) | shard.works_on()
                self.met += [
                    f"{each.name} and {shard.name} on {each.works_on() & shard.works_on()}"
                    for each in before
                    if each.works_on() & shard.works_on()
                ]
                before.append(shard)
            await asyncio.sleep(LOOK_SECONDS)


class SdkShard:
    """A manager in this process that has one config map for each secret; it can crash.

    `pod` is the UID of the pod whose container it is; without, it is outside of pods.
    """

    def __init__(
        self,
        ring: str,
        name: str,
        kubeconfig: Path,
        chronicle: Chronicle,
        timings: LeaseTimings | None = None,
        *,
        pod: str | None = None,
    ) -> None:
        self.name = name
        self.plug = Plug()
        self.manager = Manager(
            ring, shard=name, namespace="default", fenced=True, timings=timings,
            health_address="0", metrics_address="0",
        )  # fmt: skip
        self.manager.add(controller_for(SECRETS).owns(CONFIGMAPS).options(concurrency=4).reconcile(self._reconcile))
        self._kubeconfig = kubeconfig
        self._pod = pod
        self._chronicle = chronicle
        self._lease: ShardLease | None = None
        self._process: asyncio.Task[ExitCode] | None = None
        chronicle.shards.append(self)

    async def start(self) -> None:
        access = await load_access(str(self._kubeconfig))

        @asynccontextmanager
        async def connect(lease: ShardLease) -> AsyncIterator[Api]:
            self._lease = lease
            async with Client(access, fence=lease.fence) as api:
                yield api

        def open_client(fence: Fence | None) -> Client:
            return Client(access, fence=fence or self.plug)

        world = World(
            lambda: Client(access, fence=self.plug), connect, SystemClock(), Random(), serve=False, signals=False,
            die=self._die, open=open_client, instance=self._pod,
        )  # fmt: skip
        self._process = asyncio.create_task(self.manager.run_async(world))

    def _die(self, code: int, why: str) -> None:
        if not self.plug.pulled:  # whoever has crashed is gone already
            self._chronicle.met.append(f"{self.name} would have died: {why}")

    async def stop(self) -> ExitCode:
        """Leave in order."""
        assert self._process is not None
        self.manager.stopping.set()
        return await self._process

    async def ended(self) -> ExitCode:
        """Wait until it ends by itself, by what it says."""
        assert self._process is not None
        code = await self._process
        self._chronicle.shards.remove(self)
        return code

    async def crash(self) -> None:
        """Be gone from one moment to the next: the lease is left to run out."""
        assert self._process is not None
        self.plug.pulled = True
        self._chronicle.shards.remove(self)
        if self._lease is not None:
            self._lease.fence.close()
        self._process.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._process

    def works_on(self) -> HashRanges:
        """Where it may write this moment."""
        workload = self.manager._workload
        holder = None if workload is None else workload._holder
        if holder is None or self._lease is None or self._lease.fence.remaining() <= 0:
            return NOWHERE
        return holder.working | holder.ending

    def knows(self) -> set[tuple[str, str]]:
        """The secrets that it has in its cache."""
        workload = self.manager._workload
        assert workload is not None
        mains = workload._resources.values()
        return {(each.namespace, each.name) for main in mains for each in main.cache.requests()}

    def told_filtering(self) -> float:
        """Whether API servers send no more than its ranges, as its metrics tell."""
        workload = self.manager._workload
        return math.nan if workload is None else workload._caches.filtered()

    def filtered(self) -> set[bool | None]:
        """Whether the API server filters for its caches."""
        workload = self.manager._workload
        return set() if workload is None else {cache.filtered for cache in workload._caches}

    async def _reconcile(self, context: Context[Any]) -> None:
        key, note = (context.namespace, context.name), self._chronicle
        if (other := note.running.get(key)) is not None:
            note.met.append(f"{self.name} and {other} reconcile {key}")
        if point_of(context.namespace) not in self.works_on():
            note.met.append(f"{self.name} begins with {key}, and works on {self.works_on()}")
        note.running[key] = self.name
        try:
            children = context.children(CONFIGMAPS)
            await asyncio.sleep(note.busy_seconds)
            if not children:
                reference = context.controller_reference()
                metadata = {"generateName": f"{context.name}-", "ownerReferences": [reference]}
                await context.api.create(CONFIGMAPS, {"metadata": metadata}, context.namespace)
            note.seen[key] = context.metadata.resource_version
            note.by[key] = self.name
        finally:
            if note.running.get(key) == self.name:
                del note.running[key]


class ContractShard:
    """The shard that knows docs/wire-contract.md alone, as a process; it says itself where it works."""

    _FILE: Final = Path(__file__).with_name("contract_shard.py")

    def __init__(self, ring: str, name: str, kubeconfig: Path, chronicle: Chronicle, folder: Path) -> None:
        self.name = name
        self._ring = ring
        self._kubeconfig = kubeconfig
        self._chronicle = chronicle
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._working = NOWHERE
        self._works = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    @classmethod
    def source(cls) -> list[str]:
        """Its lines."""
        return cls._FILE.read_text().splitlines()

    async def start(self) -> None:
        config = yaml.safe_load(self._kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = self._folder / "ca.crt"
        authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(self._FILE), cluster["server"], str(authority), user["token"], self._ring, self.name,
            "default", stdout=asyncio.subprocess.PIPE, cwd=self._folder,
        )  # fmt: skip
        self._chronicle.shards.append(self)
        self._listening = asyncio.create_task(self._listen(self._process))

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self._working = HashRanges.parse(line.decode().strip())
            if self._working:
                self._works.set()
        self._working = NOWHERE  # it has ended

    async def until_it_works(self) -> None:
        async with asyncio.timeout(60):
            await self._works.wait()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._working = NOWHERE

    def works_on(self) -> HashRanges:
        """Where it says that it works."""
        return self._working

    async def stop(self) -> None:
        """End it, however far it is."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._listening is not None:
            await self._listening
