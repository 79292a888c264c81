"""The process of a rig's shard: started, ended, or killed at one of its writes; and what becomes of its objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from shardsdk.events.recorder import EVENTS
from shardsdk.kube.api import Operation
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import LEASES, GroupResource, Resource
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.processes import Process
from shardsdk.testing.world import world_in

#: What every shard writes besides what its controllers do.
UNSHOWN: Final[frozenset[GroupResource]] = frozenset({EVENTS.group_resource, LEASES.group_resource})


class ShardProcess:
    """`manager` in a process of its own; `api` is its client, and the clients of its unsharded work go to `others`."""

    def __init__(self, name: str, manager: Manager, api: MemoryApi, others: list[MemoryApi], rng: Random) -> None:
        self.name = name
        self.manager = manager
        self.crashed = False
        self._api = api
        self._others = others
        self._rng = rng
        self._process = Process(name)
        self._task: asyncio.Task[ExitCode] | None = None

    def start(self) -> None:
        """Run it."""
        world = world_in(self._api, self._others, self._rng)
        self._task = self._process.start(self.manager.run_async(replace(world, die=partial(self._die, world.die))))

    async def end(self) -> None:
        """Stop it as a SIGTERM does; one that has crashed is left alone.  Raises: AssertionError if it has failed."""
        if self.crashed or self._task is None:
            return
        self.manager.stopping.set()
        code = await self._task
        if code is not ExitCode.OK:
            raise AssertionError(f"the shard ended with {code.name}; the log says why")

    async def cancel(self) -> None:
        """Whatever became of it."""
        if self._task is not None and not self.crashed:
            self._task.cancel()
            await asyncio.wait([self._task])

    def kill_after(self, writes: int, then: Callable[[], object]) -> None:
        """Kill it when so many more were carried out, before it learns of the last one; and call `then`."""
        left = writes

        def count(operation: Operation[Any]) -> None:
            nonlocal left
            left -= operation.resource.group_resource not in UNSHOWN
            if left <= 0:
                kill()

        def kill() -> None:
            self._api.on_write = None
            self._process.kill()
            self.crashed = True
            then()
            # Its tasks are ended with the test's event loop: what they would send by then never was.
            for each in (self._api, *self._others):
                each.fault, each.requests, each.writes, each.sent, each.lists = Fault.REFUSED, [], [], [], []
            self._others.clear()

        if left:
            self._api.on_write = count
        else:
            kill()

    def spare(self) -> None:
        """It is not to be killed after all."""
        self._api.on_write = None

    def _die(self, die: Callable[[int, str], None], code: int, why: str) -> None:
        """Callbacks of the event loop go on after a crash."""
        if not self.crashed:
            die(code, why)


def move_objects(server: MemoryServer, labels: RingLabels, dead: str, to: str) -> None:
    """Give the objects of the shard `dead` to the shard `to`, as the sharder does once the lease has run out."""
    theirs = {"metadata": {"labels": {labels.shard: to, labels.drain: None}}}
    for resource, objects in list(server.objects.items()):
        for key, each in list(objects.items()):
            if (each["metadata"].get("labels") or {}).get(labels.shard) == dead:
                version = each["apiVersion"].rpartition("/")[2]
                found = Resource(resource.group, version, resource.resource, each["kind"], bool(key.namespace))
                server.patch(found, key.name, key.namespace or None, theirs)
