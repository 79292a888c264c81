"""A real control plane, sharders and shards as processes, each behind a network of its own, and a load on them.

What a kubelet does is done here: a process that ends unasked is started again a moment later.  Whatever keeps a
process from its work is written down, for the history.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import aiohttp

from localcluster import AdminClient, AdminError, ControlPlane
from localcluster.audit import audit_log
from localcluster.installation import Installation, Process, Sharder
from tests.chaos.audit import audit_policy
from tests.chaos.clocks import clocks_environment
from tests.chaos.credentials import SHARED, kubeconfig_of
from tests.chaos.history import CHILDREN, OWNERS, Down, History
from tests.chaos.previous import TODAY, Program, previous
from tests.chaos.proxy import Net, Proxy, tls_contexts
from tests.chaos.reading import read_history
from tests.chaos.recorder import records_of, under_way
from tests.chaos.ring import NAMESPACE, RING, RINGS, LabelledRing, settled
from tests.chaos.setup import Setup
from tests.chaos.store import STORE_FLAGS, Store

SECRETS: Final = "v1/secrets"
#: The ServiceAccount of rbac/shard.yaml, whose role has the ring's name.
ACCOUNT: Final = "checksum"
_POLL_SECONDS: Final = 0.1
#: How long a kubelet takes to start a container again, at first.
_RESTART_SECONDS: Final = 1.0
_NEW_OBJECT_SHARE: Final = 0.1
_BUSY_WRITES: Final = 20
_BUSY_OBJECTS: Final = 16
_LOOK_SECONDS: Final = 0.02
_LOOKS: Final = 100
_LEADS: Final = 'leader_election_master_status{name="sharder"} 1.0'


@dataclass
class Rig:
    """One run's processes; made by `rig_of`."""

    setup: Setup
    plane: ControlPlane
    installation: Installation
    admin: AdminClient
    store: Store
    folder: Path
    rng: Random
    exits: AsyncExitStack
    proxies: dict[str, Proxy] = field(default_factory=dict)
    #: The shards that should be there; the keeper starts them again.
    living: set[str] = field(default_factory=set)
    downs: list[Down] = field(default_factory=list)
    begin: float = 0.0
    #: Whom a shard's kubeconfig names, if not the ServiceAccount.
    users: dict[str, dict[str, str]] = field(default_factory=dict)
    #: What is started from now on.
    shards_run: Program = TODAY
    sharders_run: Program = TODAY
    _starts: dict[str, itertools.count[int]] = field(default_factory=dict)
    _processes: dict[str, str] = field(default_factory=dict)
    _loading: asyncio.Task[None] | None = None
    _unloading: bool = False
    _objects: itertools.count[int] = field(default_factory=itertools.count)
    _values: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _kept: set[str] = field(default_factory=set)

    # -- processes ----------------------------------------------------------------

    async def start_shard(self, name: str) -> None:
        """Start a shard, for the first time or again."""
        if name not in self.proxies:
            self.proxies[name] = await self._proxy()
        process = f"{name}.{next(self._starts.setdefault(name, itertools.count(1)))}"
        self._processes[name] = process
        arguments = {
            "ring": RING, "namespace": NAMESPACE, "process": process, "records": self.folder / "records",
            "lease-seconds": self.setup.lease_seconds, "children": self.setup.children,
            "busy-seconds": self.setup.busy_seconds, "restart-grace": self.setup.restart_grace_seconds,
        }  # fmt: skip
        unfenced = [] if self.setup.fenced else ["--unfenced"]
        await self.installation.start_shard(
            name,
            module=self.shards_run.shard_module,
            arguments=[f"--{key}={value}" for key, value in arguments.items()] + unfenced,
            kubeconfig=kubeconfig_of(self.folder, name, self.proxies[name].port, self.users.get(name)),
            environment={**self.shards_run.environment, **self._clocks(name)},
        )
        self.living.add(name)
        self._kept.add(name)

    async def start_sharder(self, name: str) -> None:
        """Start a replica of the sharder."""
        self.proxies[name] = await self._proxy()
        environment = {"KUBERNETES_SERVICE_PORT": str(self.proxies[name].port), **self._clocks(name)}
        self._processes[name] = name
        await self.installation.start_sharder(name, environment={**environment, **self.sharders_run.environment})
        self._kept.add(name)

    def _clocks(self, name: str) -> dict[str, str]:
        return clocks_environment(*self.setup.clocks.get(name, (0.0, 1.0)))

    def shard(self, name: str) -> Process:
        """A shard's process."""
        return self.installation.shards[name]

    async def kill_shard(self, name: str) -> None:
        """SIGKILL, and nobody starts it again until `start_shard`."""
        self._kept.discard(name)
        self.living.discard(name)
        self.down(name, "killed")
        await self.shard(name).kill()

    async def stop_shard(self, name: str) -> None:
        """Stop it in order, for good."""
        self._kept.discard(name)
        self.living.discard(name)
        await self.shard(name).stop()
        self.down(name, "ended")

    def leave(self, name: str) -> None:
        """Nobody starts this process again."""
        self._kept.discard(name)

    def keep(self, name: str) -> None:
        """It is started again once more."""
        self._kept.add(name)

    def down(self, name: str, how: Literal["killed", "suspended", "cut", "ended"]) -> None:
        """A process is kept from its work from now on."""
        self.downs.append(Down(self._processes[name], time.monotonic(), None, how))

    def up(self, name: str) -> None:
        """It may go on."""
        now = time.monotonic()
        self.downs = [
            replace(each, until=now)
            if each.process == self._processes[name] and each.until is None and each.how in ("suspended", "cut")
            else each
            for each in self.downs
        ]

    @property
    def ring(self) -> LabelledRing:
        """How objects are assigned."""
        return RINGS[self.setup.assignment]

    @asynccontextmanager
    async def suspended(self, name: str) -> AsyncIterator[None]:
        """A process is suspended in here (SIGSTOP)."""
        process = self.shard(name) if name in self.installation.shards else self.installation.sharders[name].process
        self.down(name, "suspended")
        process.pause()
        try:
            yield
        finally:
            self.up(name)  # so what it does from now on comes after
            process.resume()

    @asynccontextmanager
    async def network(self, name: str, net: Net) -> AsyncIterator[None]:
        """The network between a process and the API server is so in here."""
        self.down(name, "cut")
        self.proxies[name].set(net)
        try:
            yield
        finally:
            self.proxies[name].set(Net.OPEN)
            self.up(name)

    async def leader(self) -> Sharder:
        """The replica that leads."""
        return await self.installation.leader()

    async def another_leads(self, former: Sharder) -> None:
        """Wait until the sharder's lease names another replica than this one, which may hang."""
        others = {name: each for name, each in self.installation.sharders.items() if each is not former}
        async with asyncio.timeout(self.setup.patience_seconds):
            while True:
                for each in others.values():
                    with contextlib.suppress(aiohttp.ClientError):
                        if _LEADS in await self.installation.metrics(each):
                            return
                await asyncio.sleep(_POLL_SECONDS)

    async def working(self, name: str) -> None:
        """Wait until the last start of a shard, which may be to come, has begun its first reconcile."""
        async with asyncio.timeout(self.setup.patience_seconds):
            while not records_of(self.folder / "records", self._processes[name]):
                await asyncio.sleep(_POLL_SECONDS)

    @asynccontextmanager
    async def all_ended(self) -> AsyncIterator[None]:
        """Wait at the end until each shard has ended by itself, and been started again."""
        before = dict(self._processes)
        yield
        for name in sorted(self.living):
            async with asyncio.timeout(self.setup.patience_seconds):
                while self._processes[name] == before[name]:
                    await asyncio.sleep(_POLL_SECONDS)

    async def keep_running(self) -> None:
        """Start again what ended unasked, until cancelled."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            for name in sorted(self._kept):
                sharder = self.installation.sharders.get(name)
                process = sharder.process if sharder else self.shard(name)
                if process.running:
                    continue
                self.down(name, "ended")
                await asyncio.sleep(_RESTART_SECONDS)
                if name in self._kept and not process.running:
                    if sharder is None:
                        await self.start_shard(name)
                    else:
                        process.start()

    # -- load -----------------------------------------------------------------------

    async def create(self, count: int) -> None:
        """Create objects."""
        gate = asyncio.Semaphore(8)

        async def one() -> None:
            async with gate:
                number, value = next(self._objects), _value(next(self._values))
                body = {"metadata": {"name": f"object-{number:05}"}, "data": {"value": value}}
                await self.admin.create(SECRETS, body, self.ring.namespace_of(number))

        await asyncio.gather(*(one() for _ in range(count)))

    def load(self) -> None:
        """Change objects all the time, and make new ones, until `unload`."""
        self._unloading = False
        self._loading = asyncio.create_task(self._change())

    async def busy(self) -> None:
        """Wait until shards have so much to do that whatever is done to one meets it amid its work."""
        before = len(self.store.versions)

        def written() -> bool:
            return sum(each.resource == CHILDREN for each in self.store.versions[before:]) >= _BUSY_WRITES

        await self.store.until(written, self.setup.patience_seconds)

    async def amid_work(self, shard: str) -> None:
        """Give a shard much to do, and return while some of it is under way; anew if that was missed, or it ended."""
        async with asyncio.timeout(self.setup.patience_seconds):
            while True:
                there = self.store.current.items()
                mine = [name for (resource, name), each in there if resource == OWNERS and each.shard == shard]
                mine = mine[:_BUSY_OBJECTS]
                changes = [self._patch(name, {"data": {"value": _value(next(self._values))}}) for name in mine]
                await asyncio.gather(*changes)
                for _ in range(_LOOKS):
                    records = records_of(self.folder / "records", self._processes[shard])
                    if mine and under_way(records) >= min(_BUSY_OBJECTS // 4, len(mine)):
                        return
                    await asyncio.sleep(_LOOK_SECONDS)

    async def unload(self) -> None:
        """No more changes, and none under way: one that is cut off may be executed when all is settled."""
        if self._loading is not None:
            self._unloading = True
            await asyncio.gather(self._loading, return_exceptions=True)
            self._loading = None

    async def _change(self) -> None:
        most, known, names = self.setup.objects * 6 // 5, 0, list[str]()
        while not self._unloading:
            await asyncio.sleep(self.rng.uniform(0, 2 / self.setup.changes_per_second))
            if len(self.store.current) != known:
                known = len(self.store.current)
                names = sorted(name for resource, name in self.store.current if resource == OWNERS)
            with contextlib.suppress(AdminError, aiohttp.ClientError, OSError, TimeoutError):
                if self.rng.random() < _NEW_OBJECT_SHARE and len(names) < most:
                    await self.create(1)
                elif names:
                    body = {"data": {"value": _value(next(self._values))}}
                    async with asyncio.timeout(5.0):
                        await self._patch(self.rng.choice(names), body)

    async def _patch(self, name: str, body: dict[str, Any]) -> None:
        await self.admin.patch(SECRETS, name, body, self.store.current[OWNERS, name].namespace)

    # -- what there is --------------------------------------------------------------

    def owned(self, *shards: str) -> int:
        """How many objects these shards have."""
        return sum(
            each.shard in shards for (resource, _), each in self.store.current.items() if resource == OWNERS
        )  # fmt: skip

    def placed(self) -> bool:
        """Whether every object is where it belongs."""
        return self.ring.placed(self.store.current, self.living)

    def settled(self) -> bool:
        """Whether every object is where it belongs, with its children, and made to its user's last wish."""
        return settled(self.ring, self.store.current, self.living, self.setup.children)

    async def settle(self) -> None:
        """Wait until all is settled.  Raises: TimeoutError."""
        await self.store.caught_up()
        await self.store.until(self.settled, self.setup.patience_seconds)

    async def history(self) -> History:
        """What has happened so far."""
        await self.store.caught_up()
        logs = [audit_log(self.plane.folder, each.name) for each in self.plane.apiservers]
        return await read_history(
            self.folder / "records",
            self.store,
            audit_logs=logs if self.setup.audited else None,
            downs=self.downs,
            living=self.living,
            children=self.setup.children,
            by_ranges=self.ring.by_ranges,
            lease_seconds=self.setup.lease_seconds,
            begin=self.begin,
        )

    async def _proxy(self) -> Proxy:
        ports = [int(each.url.rpartition(":")[2]) for each in self.plane.apiservers]
        tls = None
        if self.setup.reads_requests:
            tls = tls_contexts(self.plane.folder / "pki")
        return await self.exits.enter_async_context(Proxy(ports, self.rng, tls))


@asynccontextmanager
async def rig_of(setup: Setup, folder: Path, seed: int) -> AsyncIterator[Rig]:
    """Everything started and settled, with all objects made; what was written down lies in `folder` afterwards."""
    (folder / "records").mkdir(parents=True)
    ring = RINGS[setup.assignment]
    plane = ControlPlane(
        apiserver_extra=STORE_FLAGS,
        controllers=(),
        feature_gates=setup.feature_gates,
        audit_policy=audit_policy({NAMESPACE, *ring.namespaces}) if setup.audited else None,
    )
    async with AsyncExitStack() as exits:
        await exits.enter_async_context(plane)
        for _ in range(setup.apiservers - 1):
            await plane.add_apiserver()
        installation = Installation(plane, setup.sharder_timings)
        await exits.enter_async_context(installation)
        await plane.apply(stdin=await ring.roles())
        admin = await exits.enter_async_context(plane.admin())
        for name in {*ring.namespaces} - {NAMESPACE}:
            await admin.create("v1/namespaces", {"metadata": {"name": name}})
        await installation.ring(RING, ring.spec)
        await plane.service_account_kubeconfig(NAMESPACE, ACCOUNT, folder / SHARED)
        store = Store(plane.etcd.url, {NAMESPACE, *ring.namespaces}, RING, by_ranges=ring.by_ranges)
        rig = Rig(setup, plane, installation, admin, store, folder, Random(seed), exits)
        if setup.previous:
            rig.shards_run = rig.sharders_run = previous()
        async with _running(store.run(), store.tick(admin), rig.keep_running()):
            starts = [rig.start_sharder(f"sharder-{number + 1}") for number in range(setup.sharders)]
            starts += [rig.start_shard(f"shard-{number + 1}") for number in range(setup.shards)]
            await asyncio.gather(*starts)
            await rig.create(setup.objects)
            await rig.settle()
            try:
                yield rig
            finally:
                await rig.unload()


@asynccontextmanager
async def _running(*works: Any) -> AsyncIterator[None]:
    """These run in here; one that fails ends all."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


def _value(number: int) -> str:
    return base64.b64encode(str(number).encode()).decode()
